#!/usr/bin/env python3
"""Starts N processes as ranks of one job on this machine, as torchrun would, and fails when one does.

Usage: start_ranks.py N PROGRAM WORDS…
"""

import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    variables = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(free_port())}
    processes = [subprocess.Popen(command, env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                 for rank in range(ranks)]
    codes = [process.wait() for process in processes]
    sys.exit(max(abs(code) for code in codes))


if __name__ == "__main__":
    main()
