"""Channels that are whole arrays: a task fills a bank while another reads the one filled before (ping-pong buffers).

The writer gets a bank when it starts and gives it away when it is done; the reader gets it when it starts, a cycle
later at the earliest, and frees it when it is done. Two streams say this. A writer puts to `banks` at its start, and
waits while as many banks are in use as there are; its reader takes that token out at its end. A writer puts to
`filled` at its end; its reader waits for that token at its start.

    writer:  put banks;  fill ...;  put filled
    reader:  get filled; read ...;  get banks

The depth of `banks` is the number of banks. `filled` is as deep, so that it never holds the writer up (T14).
"""

from __future__ import annotations

from typing import NamedTuple

BANK_LATENCY = 1
"""Cycles from done to start, for any number of banks."""


class ArrayStreams(NamedTuple):
    """The numbers of the two streams of an array channel."""

    banks: int
    filled: int


def filled(array: str) -> str:
    """Return the name of an array's stream of filled banks."""
    return f"{array} (filled)"
