"""Whether a worker that was lost is dead while its node lives: only then may a design it had be the cause.

Ray reports the death of a worker before it knows that the whole node is gone, and a broken connection like a death. So
the worker's node is asked: it answers that the process is gone, or that it is there, or, being dead itself, not at all.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import ray
from msgspec import Struct
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from allo_dse.common.cores import usable_cores

AUTOPSY_SECONDS = 60.0  # for a node to answer; a dead one is noticed by Ray in about 20 s
EXIT_SECONDS = 5.0  # for a process that has closed its connections to be gone


class Place(Struct, frozen=True):
    """Where a worker runs: Ray's id of its node, its process there, and how many cores that may use."""

    node: str
    process: int
    cores: int = 1


def here() -> Place:
    """Where this worker runs."""
    return Place(ray.get_runtime_context().get_node_id(), os.getpid(), usable_cores())


def begin_autopsy(place: Place) -> Any:
    """Ask a node about the process of a worker; gives the reference of the answer."""
    # Through the node's scheduler, not through a process that waits there: such a process may outlive its node's
    # scheduler for a moment, and would then bear witness to a node that is dead.
    strategy = NodeAffinitySchedulingStrategy(place.node, soft=False)
    task: Any = ray.remote(is_gone)
    return task.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote(place.process)


def died_alone(reference: Any) -> bool:
    """Whether the worker is dead and its node alive, from the answer; no without an answer by now."""
    try:
        return bool(ray.get(reference, timeout=0))
    except RayError:
        return False


def is_gone(process: int) -> bool:
    """Whether a process has ended, or does so within a few seconds."""
    until = time.monotonic() + EXIT_SECONDS
    while _lives(process):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _lives(process: int) -> bool:
    """Whether a process exists and is not merely waiting for its parent to notice that it has ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return not Path("/proc/self/stat").exists()  # ended meanwhile, or a system without /proc
    return state not in ("Z", "X")
