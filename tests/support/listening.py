"""The addresses that processes listen on, as the kernel says."""

import socket
import sys
from pathlib import Path

LISTENS = "0A"  # of the states in /proc/net/tcp


def listening(processes: set[int]) -> set[str]:
    """The addresses that some processes listen on."""
    inodes = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(link.readlink().name)
            except OSError:
                continue  # closed meanwhile
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in inodes:
                found.add(_address(fields[1].partition(":")[0]))
    return found


def _address(text: str) -> str:
    """An address that the kernel has written as words of 32 bits, each in the order of this machine."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words)).removeprefix("::ffff:")


def descendants(process: int) -> set[int]:
    found, todo = set(), [process]
    while todo:
        found.add(one := todo.pop())
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                todo += [int(text) for text in task.read_text().split() if int(text) not in found]
            except OSError:
                continue
    return found
