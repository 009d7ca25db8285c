"""The study, as users declare and run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .declare.spec import StudySpec
from .run.options import RunOptions, method

if TYPE_CHECKING:
    from .declare.enqueued import Wanted
    from .results.study_result import Result


def run_study(study: StudySpec, options: RunOptions) -> Result:
    """Search. Running again with the same run directory goes on where the last run stopped.

    Raises:
        StudyError: when the run cannot start, e.g. because the directory holds a run of something else.
    """
    from .run import session  # not for workers, which load studies and run none

    return session.run_study(study, options)


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
        verifier: function of a design that runs it and compares its numbers; `eval.verify.verify_and_prove` by default.
        folds: "kernels" folds whole kernels along the axes of their meshes, "tasks" gathers single tasks in nodes; or a
            choice of your own.
        extra_choices: what else may be chosen, after everything above.
        programs: compiles the program; for tests and other front ends.
        trials: how many designs `run` evaluates when it is not told.
        target: what shall build the winner: "allo" (default for NPUs: what Allo's AIE backend builds), or "model" (the
            device's limits only).
        sizes: what the sampler "evolution" draws, keeps and breeds, unless a run is told: "initial", "population",
            "children", "modelled".
        inputs: sets of arrays by name (a list of dictionaries, or a function of the parameters that returns one) on
            which designs are timed where data decides how often loops run or whether streams are used (FPGA); the
            slowest set counts. Designs are verified on them in place of random ones.
        rungs: more expensive evaluators for the best designs, as `Rung` objects.

    Raises:
        StudyError: when the declaration cannot work.
    """

    run = method(run_study, RunOptions)

    def enqueue(self, wanted: Wanted, *, params: Mapping[str, Any] | None = None) -> None:
        """Evaluate designs before anything is searched for; what is enqueued first is what results are compared with.

        Args:
            wanted: a design of the space; a mapping by hand, as a `MeshFold` or as the list that Allo takes; values of
                parameters, for any legal design that has them; or the directory of a run, of any size and device, for
                the best of its designs.
            params: values of parameters that a mapping is meant for; by default the first that it fits.

        Raises:
            StudyError: when the space has no such design.
        """
        from .declare.enqueued import enqueue

        enqueue(self, wanted, params or {})


# Python's errors name what users call.
StudySpec.__init__.__qualname__ = "Study"
RunOptions.__init__.__qualname__ = "Study.run"
