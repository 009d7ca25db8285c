"""Evaluation in worker processes, on this machine or on a cluster, through Ray.

Workers load the study themselves and get designs as genes, in batches sized by the measured cost of an evaluation.
Rungs that need a resource have workers of their own, on the nodes that have it. A worker that dies takes its batches
with it. Their designs are evaluated again, one by one. Only a design that kills a worker again is recorded as failed.
Losses of a whole node or its connection are not blamed on designs.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import ray
from ray._private import ray_constants, services
from ray._private.node import Node
from ray.exceptions import RayActorError, RayError, RayTaskError

from allo_dse.common.errors import StudyError
from allo_dse.common.processes import collect_rarely
from allo_dse.eval.evaluator import Needs, full_name, why_unavailable
from allo_dse.space.choices.parameters import Meaning, SharedPrograms, learn

from ..declare.pickled_study import PickledStudy
from ..declare.spec import StudySpec
from ..store.record import Measurement
from ..store.run_info import first_line
from .evaluate_one import RungEvaluator, make_rung_evaluator
from .executor import Executor, Job
from .pool import ANSWER_SECONDS, Batch, Place, Pool, Task, WorkerFailure, ask_if_gone, exited_on_live_node, here
from .ray_access import PUT_OFF_SECONDS, RayFolder, have_token, undisturbed, unreachable

# The worker process: it decodes, checks and evaluates designs that the driver has proposed.


class RayWorker:
    """A worker: the study, its space and its evaluators.

    Args:
        pickled: the study.
        asked: needs of each rung's evaluator.
    """

    def __init__(self, pickled: PickledStudy, asked: Sequence[Needs]) -> None:
        self._study = pickled.load()
        self._evaluators = self._study.make_evaluators()
        self._asked = asked
        self._evaluators_by_rung: dict[int, RungEvaluator] = {}
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def report(self) -> tuple[Place, list[str | None]]:
        """Return the worker's place, and for each rung why its evaluator cannot run there. Called first, in its
        process."""
        collect_rarely()
        return (here(), [why_unavailable(evaluator) for evaluator in self._evaluators])

    def run(self, tasks: Sequence[Task], programs: Sequence[Meaning] = ()) -> list[Measurement]:
        """Evaluate designs given as genes.

        Args:
            programs: programs of these designs that the driver has compiled.
        """
        if programs:
            learn(self._study.space, programs)
        return [self._run(task) for task in tasks]

    def _run(self, task: Task) -> Measurement:
        evaluator = self._evaluators[task.rung]
        candidate = self._study.space.decode_genes(task.genes)
        if candidate is None:
            return task.failed("the worker's space does not contain this design", full_name(evaluator), self._name)
        if task.rung not in self._evaluators_by_rung:
            self._evaluators_by_rung[task.rung] = make_rung_evaluator(
                self._study, task.rung, evaluator, worker=self._name, asked=self._asked[task.rung]
            )
        return self._evaluators_by_rung[task.rung].run(task.number, candidate)

    def close(self) -> None:
        """End child processes."""
        for rung_evaluator in self._evaluators_by_rung.values():
            rung_evaluator.close()


WAIT_SECONDS = 0.1
MANY = 16  # running batches from which on results are collected several at a time
LINGER_SECONDS = 0.005  # to wait for more results; each worker has another batch queued meanwhile
START_SECONDS = 120.0  # for Ray on this machine to start, and for the first worker of each kind to report
CLOSE_SECONDS = 2.0
PATIENCE_SECONDS = 60.0  # for lost workers to be replaced
KILL_CHILDREN = "kill_child_processes_on_worker_exit"  # a setting of Ray, for a cluster, or as RAY_... for one process
MAX_STARTS = 3  # attempts for a worker that fails to start
UNUSED = ("start_monitor", "start_log_monitor", "start_api_server")  # a Python process each: nobody asks them anything


class RayExecutor(Executor):
    """Evaluates jobs in Ray actors: `workers` of them for rungs without a special resource, more for those with one.

    Args:
        needs: needs of each rung's evaluator.
        address: address of a running cluster; None starts Ray on this machine.

    Attributes:
        problems: for each rung, why no worker can serve it; None if one can.

    Raises:
        StudyError: when the cluster cannot be reached, or its workers cannot load the study.
    """

    def __init__(self, study: StudySpec, needs: Sequence[Needs], workers: int | None, address: str | None) -> None:
        self._study = PickledStudy.of(study)
        self._needs = list(needs)
        self._names = [full_name(evaluator) for evaluator in study.make_evaluators()]
        self._own = not ray.is_initialized()
        self._folder = RayFolder()
        # By default Ray kills a worker's child processes before they can end their own.
        self._isolates = any(need.isolate for need in self._needs)
        self._found = []
        self._messages: list[str] = []
        self._pools: dict[str | None, Pool] = {}
        self._running: dict[Any, tuple[str | None, Batch]] = {}
        self._starting: dict[Any, tuple[str | None, int]] = {}
        self._programs = SharedPrograms(study.space)
        try:
            self._connect(study, workers, address)
            self._start_all(workers)
            problems = {resource: self._problems_of(resource) for resource in self._pools}
            self.problems = [
                problems[need.resource][rung]
                if need.resource in problems
                else f"no node has the resource {need.resource!r}: start one that has the tool with "
                f"`ray start --address=HEAD:PORT --resources='{{\"{need.resource}\": 1}}'`"
                for rung, need in enumerate(self._needs)
            ]
        except BaseException:
            self.close()
            raise

    # -- workers ------------------------------------------------------------------------------------------------------

    def _connect(self, study: StudySpec, workers: int | None, address: str | None) -> None:
        if not self._own:
            return
        options: dict[str, Any] = {"address": address}
        if not address:
            have_token()
            evaluators = zip(study.make_evaluators(), self._needs, strict=True)  # one of each that can run here
            own = {need.resource: 1.0 for e, need in evaluators if need.resource and not why_unavailable(e)}
            options = {
                "address": "local", "num_cpus": workers or 1, "resources": own,
                "_temp_dir": self._folder.make(), "_system_config": {KILL_CHILDREN: not self._isolates},
            }  # fmt: skip
        # Otherwise Ray's C++ code reports a SIGTERM as a crash of the driver.
        ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = True
        try:
            with undisturbed(PUT_OFF_SECONDS if address else START_SECONDS), nullcontext() if address else _alone():
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except Exception as error:  # of any class: Ray also raises `Exception` itself
            raise unreachable(address, self._folder.with_logs(str(error))) from error

    def _start_all(self, workers: int | None) -> None:
        """Start the workers: the given number or one per CPU, and one for each unit of a resource."""
        has = ray.cluster_resources()  # type: ignore[no-untyped-call]
        for resource in {need.resource: None for need in self._needs}:
            count = workers or max(1, int(has.get("CPU", 1))) if resource is None else int(has.get(resource, 0))
            if count:
                pool = self._pools[resource] = Pool(count, idle_since=time.monotonic())
                for worker in range(count):
                    self._start(resource, pool, worker)

    def _start(self, resource: str | None, pool: Pool, worker: int) -> None:
        """Start a worker, perhaps to replace a dead one. It gets work once it has introduced itself."""
        # Workers with a resource reserve no CPU: the resource alone limits their place and number.
        options: dict[str, Any] = {"num_cpus": 1} if resource is None else {"num_cpus": 0, "resources": {resource: 1}}
        options["enable_task_events"] = False  # recording calls costs the most, and nobody reads the list
        if self._isolates and not self._folder.path:
            # Our own cluster is configured instead: a worker with its own environment starts 50 % slower.
            options["runtime_env"] = {"env_vars": {f"RAY_{KILL_CHILDREN}": "0"}}
        remote: Any = ray.remote(max_restarts=0, max_task_retries=0, **options)(RayWorker)
        actor = remote.remote(self._study, self._needs)
        pool.actors[worker] = actor
        self._starting[actor.report.remote()] = (resource, worker)

    def _problems_of(self, resource: str | None) -> list[str | None]:
        """Return the problems of each rung, as the first worker of a kind reports them."""
        references = [r for r, (of, _) in self._starting.items() if of == resource]
        ready, _ = ray.wait(references, num_returns=1, timeout=START_SECONDS)
        if not ready:
            why = self._folder.with_logs("its workers do not start: are there free CPUs in the cluster?")
            return [why] * len(self._needs)
        try:
            problems: list[str | None] = ray.get(ready[0])[1]
        except RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, StudyError):
                raise cause from error
            raise StudyError(
                self._folder.with_logs(f"the workers cannot load the study: {str(error).strip().splitlines()[-1]}"),
                hint="each node needs the study file at the same path, and the same packages",
            ) from error
        self._add_started(ready[0])
        return problems

    def _add_started(self, reference: Any) -> None:
        """Take a worker that has started into its pool; try again with one that could not."""
        resource, worker = self._starting.pop(reference)
        pool = self._pools[resource]
        try:
            place: Place = ray.get(reference)[0]
        except RayError:
            pool.failures[worker] += 1
            if pool.failures[worker] < MAX_STARTS:
                self._start(resource, pool, worker)
            return
        del pool.failures[worker]
        pool.add_worker(worker, place)

    def _abandon_failed_pools(self) -> None:
        """Give up a rung whose workers are lost and cannot be replaced.

        Raises:
            StudyError: when it is the rung of every design.
        """
        for resource, pool in self._pools.items():
            if pool.ready:
                continue
            pool.idle_since = pool.idle_since or time.monotonic()
            if not pool.outstanding() or time.monotonic() - pool.idle_since < PATIENCE_SECONDS:
                continue
            if resource == self._needs[0].resource:
                raise StudyError(
                    self._folder.with_logs("all workers are lost, and no others can be started"),
                    hint="everything evaluated so far is kept: see to the cluster and run the same command again",
                )
            count = pool.abandon()
            self._messages.append(
                f"the workers with {resource!r} are lost: {count} promoted design(s) wait for a later run"
            )

    # -- work ---------------------------------------------------------------------------------------------------------

    def outstanding(self, rung: int | None = None) -> int:
        ready = sum(rung in (None, o.rung) for o in self._found)
        return ready + sum(pool.outstanding(rung) for pool in self._pools.values())

    def room(self, rung: int) -> int:
        pool = self._pools.get(self._needs[rung].resource)
        return 0 if pool is None else pool.room(rung)

    def separate(self, rung: int) -> bool:
        return self._needs[rung].resource != self._needs[0].resource

    def messages(self) -> list[str]:
        messages, self._messages = self._messages, []
        return messages

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.known is not None:
                self._found.append(job.known)
            else:
                task = Task(job.number, job.rung, job.candidate.genes)
                self._pools[self._needs[job.rung].resource].add(task)
        self._dispatch()

    def _dispatch(self) -> None:
        for resource, pool in self._pools.items():
            while (batch := pool.next_batch()) is not None:
                programs = self._programs.needed((resource, batch.worker), (task.genes for task in batch.tasks))
                reference = pool.actors[batch.worker].run.remote(batch.tasks, programs)
                pool.start(reference, batch)
                self._running[reference] = (resource, batch)

    def collect(self) -> list[Measurement]:
        timeout = 0.0 if self._found else WAIT_SECONDS
        asked = {reference: pool for pool in self._pools.values() for reference in pool.pending_failures}
        references = [*self._running, *self._starting, *asked]
        ready, _ = ray.wait(references, num_returns=1, timeout=timeout) if references else ([], [])
        started = time.perf_counter()
        if ready:  # each wait queries all references, so collect all that finished; with many, linger a moment
            linger = LINGER_SECONDS if len(self._running) > MANY else 0
            ready, _ = ray.wait(references, num_returns=len(references), timeout=linger)
            started += linger
        elif not references:
            time.sleep(timeout)
        finished = set(ready)
        for reference in references:  # in order of submission for each worker
            if reference not in finished:
                continue
            if reference in self._starting:
                self._add_started(reference)
            elif reference in self._running:
                self._found += self._finish(reference)
            elif reference in asked:
                self._found += self._retry_tasks_of(asked[reference], reference)
        # Losses whose node has not answered in time are concluded.
        late = time.monotonic() - ANSWER_SECONDS
        for pool in self._pools.values():
            for reference in [r for r, loss in pool.pending_failures.items() if loss.since < late]:
                self._found += self._retry_tasks_of(pool, reference)
        self._abandon_failed_pools()
        self._dispatch()
        if ready:
            for pool in self._pools.values():
                pool.learn_handling((time.perf_counter() - started) / len(ready))
        return self.finished()

    def _finish(self, reference: Any) -> list[Measurement]:
        resource, batch = self._running[reference]
        pool = self._pools[resource]
        try:
            found: list[Measurement] = ray.get(reference)
        except RayActorError as error:
            self._replace_failed(resource, batch.worker, error)
            return []
        except RayTaskError as error:
            found = [self._failed(task, f"worker: {error}") for task in batch.tasks]
        except RayError as error:  # the result is lost, not the worker
            self._release(reference)
            return self._requeue(pool, batch.tasks, False, first_line(error))
        else:
            for each in found:
                pool.learn(each.rung, each.seconds)
        self._release(reference)
        pool.finish(batch.tasks)
        return found

    def _release(self, reference: Any) -> None:
        resource, _ = self._running.pop(reference)
        self._pools[resource].release(reference)

    # -- deaths -------------------------------------------------------------------------------------------------------

    def _replace_failed(self, resource: str | None, worker: int, error: RayActorError) -> None:
        """Replace a lost worker, and ask its node why it was lost."""
        pool = self._pools[resource]
        loss = WorkerFailure(pool.actors[worker], pool.remove_worker(worker), first_line(error), time.monotonic())
        self._running = {r: entry for r, entry in self._running.items() if r in self._pools[entry[0]].running}
        pool.pending_failures[ask_if_gone(pool.places[worker])] = loss
        self._programs.forget((resource, worker))
        self._start(resource, pool, worker)

    def _retry_tasks_of(self, pool: Pool, reference: Any) -> list[Measurement]:
        """Try the designs of a lost worker again one by one; one that is lost again with its worker is the cause."""
        loss = pool.pending_failures.pop(reference)
        ray.kill(loss.actor)  # if only its connection broke, it still holds the CPU that its successor needs
        return self._requeue(pool, loss.tasks, exited_on_live_node(reference), loss.reason)

    def _requeue(self, pool: Pool, tasks: tuple[Task, ...], may_be_cause: bool, reason: str) -> list[Measurement]:
        failed = pool.requeue(tasks, may_be_cause)
        return [self._failed(task, self._folder.with_logs(str(task.fault(reason)))) for task in failed]

    def _failed(self, task: Task, why: str) -> Measurement:
        return task.failed(why, self._names[task.rung])

    def stop(self) -> None:
        for pool in self._pools.values():
            pool.clear_waiting()

    def close(self) -> None:
        pools = self._pools.values()
        with undisturbed():
            idle = [pool.actors[n] for pool in pools for n in pool.ready if not pool.busy(n)]
            if self._isolates and idle:
                # The child of a killed worker also ends by itself, but only once it notices.
                ray.wait([actor.close.remote() for actor in idle], num_returns=len(idle), timeout=CLOSE_SECONDS)
            for actor in (actor for pool in pools for actor in pool.actors if actor is not None):
                ray.kill(actor)
            if self._own:
                ray.shutdown()
            self._folder.remove()


@contextmanager
def _alone() -> Iterator[None]:
    """Has a Ray that starts listen on 127.0.0.1, as on systems for which Ray has no clusters, and gives it time.

    Given that address as an option, Ray replaces it by the computer's own. Its 30 s for a node to be known are not
    enough on a busy computer, and it uses them to ask without a pause.
    """
    get_node, until = services.get_node, time.monotonic() + START_SECONDS

    def patiently(*arguments: Any) -> Any:
        while True:
            try:
                return get_node(*arguments)  # type: ignore[no-untyped-call]
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(WAIT_SECONDS)

    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", f"{START_SECONDS:.0f}")
    with ExitStack() as before:
        for owner, name, value in (
            *((Node, name, lambda *_, **__: None) for name in UNUSED if hasattr(Node, name)),
            (ray_constants, "ENABLE_RAY_CLUSTER", False),
            (services, "get_node", patiently),
        ):
            before.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield
