#!/usr/bin/env python3
"""Starts N processes as ranks of one job on this machine, as torchrun would, and fails when one does.

Usage: start_ranks.py [--share-gpu] N PROGRAM WORDS…

--share-gpu: all ranks on this machine's first GPU, to test without several. To NCCL each is a host of its own (it refuses
two ranks on one GPU of a host) and its messages go through sockets; the ranks map one another's memory all the same.
"""

import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def place(rank, ranks, shares):
    if shares:
        return {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NCCL_HOSTID": f"host-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)}


def main():
    words = sys.argv[1:]
    shares = words[0] == "--share-gpu"
    ranks, command = int(words[int(shares)]), words[int(shares) + 1:]
    variables = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [subprocess.Popen(command, env={**os.environ, **variables, **place(rank, ranks, shares), "RANK": str(rank)})
                 for rank in range(ranks)]
    codes = [process.wait() for process in processes]
    sys.exit(max(abs(code) for code in codes))


if __name__ == "__main__":
    main()
