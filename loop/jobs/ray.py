"""The executor `ray`: each job is a task of a Ray cluster. Ray gives it a GPU, and begins it again if a node dies.

Jobs travel as archives, so that nodes share no folder. On a cluster with GPUs of several kinds one kind is used:
nothing is compared across kinds.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import shutil
import signal
import tarfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import loop
from loop.base.documents import write_atomic
from loop.base.errors import UsageError, WorkFailed
from loop.base.processes import python_path
from loop.jobs.folder import LOCK, MOST_TRIES, RC, SRC, TRIES, WHAT, JobFolder, jobs_folder, write_runner
from loop.jobs.groups import devices
from loop.jobs.running import run
from loop.model.jobs import State

ROOM_S = 120.0
"""So long a cluster may have no node that a job can use."""
ENDS_S = 60.0
QUIET = {"logging_level": "ERROR", "log_to_driver": False}
ADDRESS = "RAY_ADDRESS"
KIND = "accelerator_type:"
"""How Ray's resource for GPUs of a kind begins; its amount is the number of nodes that have such."""
SEE = "`ray status` shows the nodes; each needs this loop"


def run_there(version: str, id_: str, packed: bytes, *, gpu: bool) -> bytes:
    """Run a job on the node that Ray chose; an archive of what it made, and of what it says of itself."""
    if version != loop.__version__:
        message = f"{os.uname().nodename} of the Ray cluster has loop {loop.__version__}, here it is {version}"
        raise UsageError(message, hint=f"pip install kernel-loop=={version} there")
    devices.cache_clear()  # Ray gives a process another GPU with the next task.
    job = JobFolder(jobs_folder() / f"ray-{os.getpid()}" / id_)
    shutil.rmtree(job.path, ignore_errors=True)
    unpack(packed, job.path)
    try:
        run(job, where=devices(gpu=gpu)[0], lasting=False)
        return pack(job.path, but=(WHAT, SRC, LOCK))
    finally:
        shutil.rmtree(job.path.parent, ignore_errors=True)


def check() -> None:
    """Raises UsageError where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--executor ray needs the package `ray`", hint="pip install 'kernel-loop[ray]'")


def opened(width: int) -> "Ray":
    """Tasks on the cluster of RAY_ADDRESS, or one that runs here; else a cluster of this machine alone."""
    with _own_signals():
        ray = importlib.import_module("ray")
        if not ray.is_initialized():
            _connect(ray)
    return Ray(ray, width)


def _connect(ray: Any) -> None:
    """Raises UsageError for a cluster that does not answer, or whose versions are others."""
    try:
        ray.init(address=os.environ.get(ADDRESS, "auto"), **QUIET)
    except ConnectionError as error:
        if ADDRESS in os.environ:
            hint = f"start it with `ray start --head`, or unset {ADDRESS}"
            raise UsageError(f"no Ray cluster at {os.environ[ADDRESS]}: {error}"[:300], hint=hint) from error
        ray.init(include_dashboard=False, **QUIET)
    except RuntimeError as error:
        raise UsageError(
            f"the Ray cluster is of another version: {error}"[:600], hint="pip install 'ray==...'"
        ) from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray sets handlers of its own for signals; ours end the walk in good order."""
    names = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(name) for name in names]
    try:
        yield
    finally:
        for name, handler in zip(names, before, strict=True):
            with contextlib.suppress(ValueError):  # Not the main thread: nothing was changed.
                signal.signal(name, handler)


class Ray:
    """Jobs on a cluster, `width` at a time. Which node and GPU a job gets is Ray's to say."""

    def __init__(self, ray: Any, width: int) -> None:
        self.ray, self.width = ray, width
        self._queue: deque[JobFolder] = deque()
        self._running: dict[Any, JobFolder] = {}
        """What Ray will give for a task, and its job."""
        self._ended: dict[str, State] = {}
        self._without: float | None = None
        """Since when there is no node for a job."""
        resources = ray.cluster_resources()
        self._gpu = resources.get("GPU", 0) >= 1
        kinds = {name: count for name, count in resources.items() if name.startswith(KIND)}
        self._kind = max(kinds, key=lambda name: (kinds[name], name), default="")

    def submit(self, job: JobFolder) -> None:
        """Put it at the end of the queue."""
        self._ended.pop(job.id, None)
        self._queue.append(job)

    def poll(self, jobs: Sequence[JobFolder]) -> Mapping[str, State]:
        """Take over what has ended, and begin what can be. Raises LoopError where the cluster can run nothing."""
        for answer in self._answered(0):
            self._take(answer)
        while self._queue and len(self._running) < self.width:
            alone = [job.job.alone for job in self._running.values()]
            if any(alone) or (self._queue[0].job.alone and alone):
                break
            self._begin(self._queue.popleft())
        self._hope()
        waiting = {job.id for job in self._queue}
        return {job.id: self._ended.get(job.id, "queued" if job.id in waiting else "running") for job in jobs}

    def rest(self, seconds: float) -> None:
        """Until a job ends."""
        if self._running:
            self._answered(seconds)
        else:
            time.sleep(seconds)

    def _answered(self, seconds: float) -> list[Any]:
        """Tasks that have ended; waits so long for the first."""
        if not self._running:
            return []
        self.ray.wait([*self._running], num_returns=1, timeout=seconds)
        ended, _ = self.ray.wait([*self._running], num_returns=len(self._running), timeout=0)
        return list(ended)

    def _begin(self, job: JobFolder) -> None:
        """Hand a job to Ray."""
        gpu = job.job.needs_gpu and self._gpu
        kind = {self._kind: 0.001} if gpu and self._kind else {}
        options = {"num_cpus": 1, "num_gpus": int(gpu), "resources": kind, "max_retries": MOST_TRIES - 1}
        task = self.ray.remote(run_there).options(runtime_env={"env_vars": variables()}, **options)
        write_runner(job, os.getpid())
        self._running[task.remote(loop.__version__, job.id, pack(job.path, but=(LOCK,)), gpu=gpu)] = job

    def _take(self, answer: Any) -> None:
        """What a job made, into its folder here; it is lost where Ray gave up. Raises what the node cannot do."""
        job, errors = self._running.pop(answer), self.ray.exceptions
        try:
            unpack(self.ray.get(answer), job.path)
            self._ended[job.id] = job.state
        except errors.TaskCancelledError:
            self._ended[job.id] = "cancelled"
        except errors.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                self._ended[job.id] = "cancelled"
                return
            if isinstance(error.cause, UsageError):
                raise error.cause from None
            raise WorkFailed(f"no job can run on the Ray cluster: {str(error.cause)[:300]}", hint=SEE) from error
        except errors.RayError:
            write_atomic(job.path / TRIES, str(job.tries + MOST_TRIES))
            self._ended[job.id] = "lost"

    def _hope(self) -> None:
        """Raise WorkFailed where the cluster has had no node for a job for too long."""
        resources = self.ray.cluster_resources()
        needs = {"GPU" if job.job.needs_gpu and self._gpu else "CPU" for job in self._running.values()}
        if all(resources.get(kind, 0) >= 1 for kind in needs):
            self._without = None
            return
        self._without = self._without or time.monotonic()
        if time.monotonic() - self._without > ROOM_S:
            raise WorkFailed("no node of the Ray cluster is left that a job may use", hint=SEE)

    def cancel(self, job: JobFolder) -> None:
        """Take it out of the queue, or have Ray interrupt its task, which ends its command."""
        job.cancel()
        if job in self._queue:
            self._queue.remove(job)
        for answer, running in self._running.items():
            if running.id == job.id:
                self.ray.cancel(answer)

    def collect(self, job: JobFolder) -> None:
        """It was brought here with its task's answer. Raises WorkFailed for what it did not make."""
        job.check()

    def avoid(self, uuid: str) -> bool:
        """Which GPU a task gets is Ray's to say."""
        return False

    def close(self) -> None:
        """Wait for what was cancelled; the cluster stays."""
        for answer in self._running:
            self.ray.cancel(answer)
        if self._running:
            self.ray.wait([*self._running], num_returns=len(self._running), timeout=ENDS_S)


def variables() -> dict[str, str]:
    """What a task sees of our environment besides its node's: where `loop` and its folders are."""
    own = {name: os.environ[name] for name in ("LOOP_CACHE", "LOOP_STATE") if name in os.environ}
    return {**own, "PYTHONPATH": python_path()}


def pack(folder: Path, but: Sequence[str] = ()) -> bytes:
    """A folder as an archive, without what is named at its top."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path in sorted(folder.iterdir(), key=lambda path: path.name == RC):  # The exit code comes last.
            if path.name not in but:
                archive.add(path, path.name)
    return data.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """The reverse. Raises tarfile.TarError for what would lie outside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
