"""The executor `ray`: an actor a GPU of a Ray cluster, which runs each job as a child that can be killed.

Jobs travel as archives, so that nodes share no folder. An actor that dies loses its job, which is begun again on
another. Ray restarts nothing itself: a kernel that kills its GPU must not loop.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import shutil
import signal
import tarfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import loop
from loop.base.documents import write_atomic
from loop.base.errors import UsageError, WorkFailed
from loop.base.processes import python_path
from loop.base.remarks import remark
from loop.jobs.folder import LOCK, RC, SRC, TRIES, WHAT, JobFolder, jobs_folder, write_runner
from loop.jobs.groups import devices, group_of
from loop.jobs.running import run
from loop.model.jobs import State, Where

BEGINS_S = 120.0
"""Time for an actor to answer for the first time: its node imports Ray and `loop`."""
DEATHS = 3
"""Actors for each place that may die; then nobody is left to begin a job."""
QUIET = {"logging_level": "ERROR", "log_to_driver": False}
ADDRESS = "RAY_ADDRESS"


class Supervisor:
    """What runs on a node: one job at a time, and a way to end it."""

    def __init__(self, *, gpu: bool) -> None:
        self.where = devices(gpu=gpu)[0]
        self.folder = jobs_folder() / f"ray-{os.getpid()}"
        self.begun = 0
        """Jobs so far: each has a folder of its own."""
        self.at: JobFolder | None = None

    def told(self) -> tuple[str, dict[str, Any]]:
        """Version of `loop`, and the device."""
        return loop.__version__, self.where.model_dump()

    def run(self, id_: str, packed: bytes) -> bytes:
        """Run a job; what it made, and what it says of itself."""
        self.begun += 1
        job = JobFolder(self.folder / str(self.begun) / id_)
        self.at = job
        unpack(packed, job.path)
        try:
            run(job, where=self.where, lasting=False)
            return pack(job.path, but=(WHAT, SRC, LOCK))
        finally:  # Beside the next one: the disk may take its time.
            threading.Thread(target=shutil.rmtree, args=[job.path.parent], kwargs={"ignore_errors": True}).start()

    def cancel(self, id_: str) -> None:
        """Have the job end."""
        with contextlib.suppress(FileNotFoundError):
            if self.at is not None and self.at.id == id_:
                self.at.cancel()


@dataclass
class Place:
    """One actor, and the job that it is at."""

    actor: Any
    gpu: bool
    uuid: str = ""
    idle: bool = False
    """Whether it may be given a job: it has told what it is, and is not set aside."""
    job: JobFolder | None = None
    answer: Any = None
    """What Ray will give for it; before the first, what it tells of itself. None for nothing."""
    begun: float = field(default_factory=time.monotonic)


def check() -> None:
    """Raises UsageError where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--executor ray needs the package `ray`", hint="pip install 'kernel-loop[ray]'")


def opened(width: int) -> "Ray":
    """Actors on the cluster of RAY_ADDRESS, or one that runs here; else a cluster of this machine alone."""
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
    """Jobs on a cluster: those for GPUs on actors that hold one, the others beside them."""

    def __init__(self, ray: Any, width: int) -> None:
        self.ray, self.width = ray, width
        self.places: list[Place] = []
        self.group = ""
        """Devices of another group are set aside: nothing is compared across groups."""
        self._queue: deque[JobFolder] = deque()
        self._ended: dict[str, State] = {}
        self._deaths = 0
        self._without: dict[bool, float] = {}
        """Since when there is nobody for jobs of a GPU, or of a processor, nor room for one."""
        self._gpus = self._count("GPU") > 0

    def submit(self, job: JobFolder) -> None:
        """Put it at the end of the queue."""
        self._ended.pop(job.id, None)
        self._queue.append(job)

    def poll(self, jobs: Sequence[JobFolder]) -> Mapping[str, State]:
        """Take over what has ended, and begin what can be. Raises WorkFailed where no node is left."""
        for place in self._answered(0):
            if place.job is None:
                self._hear(place)
            else:
                self._take(place, place.job)
        for place in tuple(self.places):
            if place.job is None and place.answer is not None and time.monotonic() - place.begun > BEGINS_S:
                remark(f"an actor has not begun for {BEGINS_S:g} s; is the Ray cluster full? See `ray status`")
                self._drop(place)
        self._fill()
        waiting = {job.id for job in self._queue}
        return {job.id: self._ended.get(job.id, "queued" if job.id in waiting else "running") for job in jobs}

    def rest(self, seconds: float) -> None:
        """Until an actor answers."""
        if all(place.answer is None for place in self.places):
            time.sleep(seconds)
        self._answered(seconds)

    def _answered(self, seconds: float) -> list[Place]:
        """Those whose answer is here, at the latest after so long; at least one as soon as it is."""
        asked = {place.answer: place for place in self.places if place.answer is not None}
        if not asked:
            return []
        self.ray.wait([*asked], num_returns=1, timeout=seconds)
        here, _ = self.ray.wait([*asked], num_returns=len(asked), timeout=0)
        return [asked[answer] for answer in here]

    def _take(self, place: Place, job: JobFolder) -> None:
        """What a job made, into its folder here; it is lost where its actor or its node died."""
        try:
            packed = self.ray.get(place.answer)
        except self.ray.exceptions.RayError:
            write_atomic(job.path / TRIES, str(job.tries + 1))
            self._ended[job.id] = "lost"
            self._drop(place)
            self._deaths += 1
        else:
            unpack(packed, job.path)
            self._ended[job.id] = job.state
            self._deaths = 0
        place.job = place.answer = None

    def _fill(self) -> None:
        """Begin jobs as long as somebody is free; those that want to be alone, when nothing else runs."""
        full: set[bool] = set()
        for job in tuple(self._queue):
            what = job.job
            gpu = what.needs_gpu and self._gpus
            running = [place.job.job.alone for place in self.places if place.job is not None]
            if any(running) or (what.alone and running):
                return
            place = None if gpu in full else self._free(gpu=gpu)
            if place is None:
                full.add(gpu)
                if len(full) == 1 + self._gpus:
                    return
                continue
            self._queue.remove(job)
            write_runner(job, os.getpid())
            place.job = job
            place.answer = place.actor.run.remote(job.id, pack(job.path, but=(LOCK,)))

    def _free(self, *, gpu: bool) -> Place | None:
        """An actor that has nothing to do; where there is none, as many are begun as the cluster has room for."""
        alike = [place for place in self.places if place.gpu == gpu]
        idle = next((place for place in alike if place.idle and place.job is None), None)
        if idle is not None:
            return idle
        if self._deaths >= DEATHS * self.width:
            hint = "see `ray status`; then go on with --resume"
            raise WorkFailed(f"{self._deaths} actors of the Ray cluster died one after the other", hint=hint)
        useful = sum(place.idle or place.answer is not None for place in alike)
        wanted = min(self.width, len(self._queue)) - useful
        room = self._count("GPU" if gpu else "CPU") - len(alike) if wanted > 0 else 0
        for _ in range(min(wanted, room)):
            self._begin(gpu=gpu)
        if useful or room > 0:
            self._without.pop(gpu, None)
        elif time.monotonic() - self._without.setdefault(gpu, time.monotonic()) > BEGINS_S:
            hint = "see `ray status`; then go on with --resume"
            raise WorkFailed("no node of the Ray cluster is left that a job may use", hint=hint)
        return None

    def _count(self, kind: str) -> int:
        return int(self.ray.cluster_resources().get(kind, 0))

    def _begin(self, *, gpu: bool) -> None:
        """Have an actor made: it is asked what it is, and used once it has answered."""
        settings = {"num_gpus": 1} if gpu else {"num_cpus": 1, "num_gpus": 0}
        kind = self.ray.remote(Supervisor)
        options = {"max_concurrency": 2, "max_restarts": 0, "runtime_env": {"env_vars": variables()}}
        actor = kind.options(**options, **settings).remote(gpu=gpu)
        self.places.append(Place(actor, gpu, answer=actor.told.remote()))

    def _hear(self, place: Place) -> None:
        """What an actor tells of itself: it is used, or set aside. Raises LoopError where none can be."""
        try:
            version, fields = self.ray.get(place.answer)
        except self.ray.exceptions.RayError as error:
            self._drop(place)
            self._deaths += 1
            if not self.group and getattr(error, "actor_init_failed", True):  # Not with its node: no other begins.
                said = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")
                hint = "each node needs kernel-loop; `ray status` shows the nodes"
                raise WorkFailed(f"no job can begin on the Ray cluster: {said[:300]}", hint) from error
            return
        place.answer = None
        where = Where(**fields)
        if version != loop.__version__:
            message = f"{where.host} of the Ray cluster has loop {version}, here it is {loop.__version__}"
            raise UsageError(message, hint=f"pip install kernel-loop=={loop.__version__} there")
        self.group = self.group or group_of(where)
        place.uuid = where.uuid
        place.idle = not place.gpu or group_of(where) == self.group
        if not place.idle:  # It keeps its device, so that no other actor gets it.
            remark(f"{where.host} is set aside: {group_of(where)}; the others are {self.group}")

    def _drop(self, place: Place) -> None:
        with contextlib.suppress(Exception):  # It is dead already.
            self.ray.kill(place.actor)
        if place in self.places:
            self.places.remove(place)

    def cancel(self, job: JobFolder) -> None:
        """Take it out of the queue, or have it end where it runs."""
        job.cancel()
        if job in self._queue:
            self._queue.remove(job)
        for place in self.places:
            if place.job is not None and place.job.id == job.id:
                place.actor.cancel.remote(job.id)

    def collect(self, job: JobFolder) -> None:
        """It was brought here with its last answer. Raises WorkFailed for what it did not make."""
        job.check()

    def avoid(self, uuid: str) -> bool:
        """Keep the actor of a device, and give it no further job, so that no other gets the device."""
        mine = [place for place in self.places if place.uuid == uuid]
        if all(place in mine for place in self.places if place.idle):
            return False
        for place in mine:
            place.idle = False
        return bool(mine)

    def close(self) -> None:
        """Wait a moment for what was cancelled, then end all actors; the cluster stays."""
        busy = [place.answer for place in self.places if place.job is not None]
        if busy:
            self.ray.wait(busy, num_returns=len(busy), timeout=30)
        for place in tuple(self.places):
            self._drop(place)


def variables() -> dict[str, str]:
    """What an actor sees of our environment besides its node's: where `loop` and its folders are."""
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
