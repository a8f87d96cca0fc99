#!/usr/bin/env python3
"""Starts N processes as ranks of one job on this machine, as torchrun would, and fails when one does.

Usage: start_ranks.py [--share-gpu] N PROGRAM WORDS…

--share-gpu: all ranks on this machine's first GPU, to test without several. To NCCL each is a host of its own (it refuses
two ranks on one GPU of a host) and its messages go through sockets; the ranks map one another's memory all the same.
"""

import os
import signal
import socket
import subprocess
import sys
import time

PATIENCE_S = 30  # for the other ranks, when one has failed


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
    job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = []
    for rank in range(ranks):
        variables = {**os.environ, **job, **place(rank, ranks, shares), "RANK": str(rank)}
        processes.append(subprocess.Popen(command, env=variables))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        while (codes := [process.poll() for process in processes]).count(None) and not any(codes):
            time.sleep(0.05)
        patience = time.monotonic() + PATIENCE_S
        while None in [process.poll() for process in processes] and time.monotonic() < patience:
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()  # of one that has ended: nothing
    sys.exit(max(abs(process.wait()) for process in processes))


if __name__ == "__main__":
    main()
