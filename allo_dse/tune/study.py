"""The study, as users declare and run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from .declare.spec import StudySpec
from .results.result import Result
from .run.session import RunOptions, run_study


class Study(StudySpec):
    """What to search, and for what.

        study = Study("gemm", program=gemm, params={"Pm": divisors(2048, at_most=64)}, device="npu1_4col",
                      objectives=[minimize("latency_us"), minimize(lambda m: m.pe_count, name="cores")],
                      constraints=[require(lambda m: m.dram_bytes < 64e6)], reference=lambda A, B: A @ B)
        result = study.run(trials=500, seed=0)

    Args:
        program: a region, or a function of the parameters that returns one.
        params: by name; what is not a `Parameter` is a fixed value.
        where: conditions on the parameters, e.g. `lambda p: p.Pm * p.Pn <= 1024`.
        device: a device, or its name or path.
        objectives: at least one.
        constraints: on the metrics.
        reference: computes the expected results from the inputs with NumPy, to verify the final front; the unfolded
            program serves where there is none.
        verify_with: maps a design's parameters to those of a reduced instance to verify with.
        output_depths: object FIFO depths of output ports to choose from (NPU).
        kernels: kernel libraries of the device to choose from, beside the one it selects itself (NPU).
        schedules: what may vary about loops, arrays and tensors (FPGA): schedule parameters, "auto", or both in a list.
        evaluator: what measures designs, or a function without arguments that makes it (in each worker process); the
            simulator by default.
        check: device limits, as a function of a design; those of its mapping and its target by default.
        verifier: function of a design that runs it and compares its numbers; `eval.verify.verify_design` by default.
        folds: "kernels" folds whole kernels along the axes of their meshes, "tasks" gathers single tasks in nodes; or a
            choice of your own.
        extra_choices: what else may be chosen, after everything above.
        programs: compiles the program; for tests and other front ends.
        trials: how many designs `run` evaluates when it is not told.
        target: what shall build the winner: "allo" (default for NPUs: what Allo's AIE backend builds), or "model" (the
            device's limits only).
        rungs: dearer evaluators that the best designs are promoted to, as `Rung` objects.

    Raises:
        StudyError: when the declaration cannot work.
    """

    def run(
        self,
        trials: int | None = None,
        *,
        time: str | float | None = None,
        workers: int | None = None,
        seed: int | None = None,
        sampler: Any = "auto",
        run_dir: str | Path | None = None,
        fresh: bool = False,
        verify: bool = True,
        ray_address: str | None = None,
        progress: Any = "auto",
        command: Sequence[str] = (),
        cache: str | Path | Literal[False] | None = None,
        storage: str | None = None,
        deadline: str | float | Mapping[str, str | float] | None = None,
    ) -> Result:
        """Search. Running again with the same run directory goes on where the last run stopped.

        Args:
            trials: designs to evaluate in all, those of earlier runs in the same directory included.
            time: budget of this run, in seconds or as "90s", "5m", "1h30m".
            workers: 1 evaluates in this process; more start as many worker processes through Ray. By default 1, or with
                `ray_address` one per CPU of the cluster.
            seed: with one worker, the same seed gives the same trials; by default that of the earlier run, or 0.
            sampler: "auto", "evolution", "random", "nsga2", "tpe", "exhaustive" or an Optuna sampler.
            run_dir: `runs/<name>` by default.
            fresh: discard an earlier run in the directory.
            verify: run the designs of the final front and compare their numbers.
            ray_address: of a running Ray cluster.
            progress: "auto", "live", "plain", "json", "quiet" or a `Reporter`.
            command: the command line, to be shown where a run can be resumed.
            cache: directory of results to share with other runs; False for none. By default `runs/.results` for a run
                in its default directory, and none for others.
            storage: an Optuna storage that gets the same trials and in which several drivers share a study, each with a
                run directory of its own: an address as SQLAlchemy has it, "journal" or "journal:FILE".
            deadline: how long one design may take, in seconds or as "30s", instead of what the evaluators say, or the
                same by an evaluator's name. Evaluators with one run in a process of their own.

        Raises:
            StudyError: when the run cannot start, e.g. because the directory holds a run of something else.
        """
        return run_study(
            self,
            RunOptions(
                trials=self.trials if trials is None and time is None else trials,
                time=time,
                workers=workers,
                seed=seed,
                sampler=sampler,
                run_dir=None if run_dir is None else Path(run_dir),
                fresh=fresh,
                verify=verify,
                ray_address=ray_address,
                progress=progress,
                command=tuple(command),
                cache=Path(cache) if isinstance(cache, str) else cache,
                storage=storage,
                deadlines=deadline if isinstance(deadline, Mapping) else {} if deadline is None else {"": deadline},
            ),
        )
