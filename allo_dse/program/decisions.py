"""What the tasks of a program decided when it ran on given inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Pid = tuple[int, ...]


class Decisions(Struct, frozen=True):
    """One run.

    Attributes:
        classes: by kernel and class where data decides, by process id, and by the site of a condition or loop in the
            task's body, a row per execution: whether the condition held, or the loop's rounds and the last value of
            its variable.
    """

    classes: Mapping[tuple[str, str], Mapping[Pid, Mapping[int, NDArray[np.int64]]]]

    def of_class(self, kernel: str, name: str) -> Mapping[Pid, Mapping[int, NDArray[np.int64]]]:
        """What tasks of a class decided; empty where data decides on nothing."""
        return self.classes.get((kernel, name), {})

    @property
    def digest(self) -> str:
        """Equal for runs that decided alike."""
        found = hashlib.sha256()
        for place, tasks in sorted(self.classes.items()):
            for pid, sites in sorted(tasks.items()):
                for site, rows in sorted(sites.items()):
                    found.update(repr((place, pid, site)).encode() + np.ascontiguousarray(rows).tobytes())
        return found.hexdigest()[:16]
