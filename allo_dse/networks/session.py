"""Sessions: a composed network as a function of its inputs, on the simulator, the host, or a board."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from allo_dse.common.errors import StudyError

from .network import Array, Arrays, Network

PLACES = ("simulator", "host", "board")


@dataclass
class Session:
    """A network that can be run again and again.

    Attributes:
        compute: from an array for each input to all tensors that are outputs.
        predicted_us: time of each operator, by its step's name.
        measured_us: the same as the last run took; empty where nothing is measured.
    """

    network: Network
    compute: Callable[[Session, Mapping[str, Array]], Mapping[str, Array]]
    predicted_us: Mapping[str, float]
    measured_us: dict[str, float] = field(default_factory=dict)

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the outputs, by name.

        Args:
            inputs: an array for each input of the network.

        Raises:
            StudyError: if one is missing, or of another shape; if the driver of a board fails.
        """
        given = self.network.given({name: np.asarray(array) for name, array in inputs.items()})
        found = {**self.network.constants, **given, **self.compute(self, given)}
        return {name: found[name] for name in self.network.outputs}


def on_board(folder: Path, python: str = sys.executable) -> Callable[[Session, Mapping[str, Array]], Arrays]:
    """Return what runs an exported network: its `run.py`, in an interpreter that has the board's tools."""

    def compute(session: Session, inputs: Mapping[str, Array]) -> Arrays:
        with tempfile.TemporaryDirectory() as place:
            given, made = Path(place, "inputs.npz"), Path(place, "outputs.npz")
            np.savez(given, **dict(inputs))  # type: ignore[arg-type]
            command = [python, "run.py", "--json", "--inputs", str(given), "--outputs", str(made)]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
                raise StudyError(f"{folder / 'run.py'}: exit code {done.returncode}: {said}", hint="run it by itself")
            facts = json.loads(done.stdout.splitlines()[-1])
            runs = [run for launch in facts["launches"] for run in launch["runs"]]
            session.measured_us = {run["step"]: run["latency_us"] for run in runs if run["latency_us"] is not None}
            session.measured_us |= facts["host_us"]
            with np.load(made) as data:
                return dict(data)

    return compute
