"""The executor `ray`: each job is a task of a Ray cluster, which gives it a node and a GPU.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loop
from loop.base.errors import UsageError, WorkFailed
from loop.base.processes import python_path
from loop.jobs.executor import Slot, run
from loop.jobs.folder import LOCK, PID, RC, SRC, WHAT, JobFolder, devices, jobs_folder

ROOM_S = 120.0
"""Longest time for which a cluster may have no node that a job can use."""
LOOK_S = 0.5
"""Seconds between two looks whether a job was cancelled."""
QUIET = {"logging_level": "ERROR", "log_to_driver": False}
ADDRESS = "RAY_ADDRESS"
KIND = "accelerator_type:"
"""How Ray's resource for GPUs of a kind begins; its amount is the number of nodes that have such."""
SEE = "`ray status` shows the nodes; each needs this loop"


def run_there(version: str, id_: str, packed: bytes, *, gpu: bool) -> bytes:
    """Run a job on the node that Ray chose. Returns an archive of what it made and of what it says of itself."""
    if version != loop.__version__:
        message = f"{os.uname().nodename} of the Ray cluster has loop {loop.__version__}, here it is {version}"
        raise UsageError(message, hint=f"pip install kernel-loop=={version} there")
    devices.cache_clear()  # Ray gives a process another GPU with the next task.
    job = JobFolder(jobs_folder() / f"ray-{os.getpid()}" / id_)
    shutil.rmtree(job.path, ignore_errors=True)
    unpack(packed, job.path)
    try:
        run(job, where=devices(gpu=gpu)[0])
        return pack(job.path, but=(WHAT, SRC, LOCK))
    finally:
        shutil.rmtree(job.path.parent, ignore_errors=True)


def check() -> None:
    """Raises UsageError where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--executor ray needs the package `ray`", hint="pip install 'kernel-loop[ray]'")


def slots(width: int) -> list[Slot]:
    """Tasks on the cluster of RAY_ADDRESS, or one that runs here; else a cluster of this machine alone.

    Raises UsageError for a cluster that does not answer, or whose versions are others.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:  # Ray sets handlers of its own for signals; ours end the walk in good order.
        ray = importlib.import_module("ray")
        try:
            if not ray.is_initialized():
                ray.init(address=os.environ.get(ADDRESS, "auto"), **QUIET)
        except ConnectionError as error:
            if ADDRESS in os.environ:
                hint = f"start it with `ray start --head`, or unset {ADDRESS}"
                raise UsageError(f"no Ray cluster at {os.environ[ADDRESS]}: {error}"[:300], hint=hint) from error
            ray.init(include_dashboard=False, **QUIET)
        except RuntimeError as error:
            message = f"the Ray cluster is of another version: {error}"[:600]
            raise UsageError(message, hint="pip install 'ray==...'") from error
    finally:
        for number, handler in handlers.items():
            with contextlib.suppress(ValueError):  # Not the main thread: nothing was changed.
                signal.signal(number, handler)
    return [RaySlot(ray) for _ in range(width)]


class RaySlot(Slot):
    """One task at a time on a cluster."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        resources = ray.cluster_resources()
        self._gpu = resources.get("GPU", 0) >= 1
        kinds = {name: count for name, count in resources.items() if name.startswith(KIND)}
        self.kind = max(kinds, key=lambda name: (kinds[name], name), default="")

    def do(self, job: JobFolder) -> None:
        """Send it as a task, and unpack what comes back."""
        gpu, ray = job.job.needs_gpu and self._gpu, self.ray
        needs = {"num_cpus": 1, "num_gpus": int(gpu), "resources": {self.kind: 0.001} if gpu and self.kind else {}}
        # Jobs are begun again by the executor, which counts their tries.
        remote = ray.remote(run_there).options(runtime_env={"env_vars": variables()}, max_retries=0, **needs)
        job.write_runner(os.getpid())
        task = remote.remote(loop.__version__, job.id, pack(job.path, but=(LOCK,)), gpu=gpu)
        room_at, cancelled = time.monotonic(), False
        while not ray.wait([task], timeout=LOOK_S)[0]:
            if job.cancelled and not cancelled:
                ray.cancel(task)
                cancelled = True
            if ray.cluster_resources().get("GPU" if gpu else "CPU", 0) >= 1:
                room_at = time.monotonic()
            elif time.monotonic() - room_at > ROOM_S:
                ray.cancel(task)
                self.trouble = WorkFailed("no node of the Ray cluster is left that a job may use", hint=SEE)
                raise self.trouble
        try:
            unpack(ray.get(task), job.path)
            job.check()
        except ray.exceptions.TaskCancelledError:
            (job.path / PID).unlink(missing_ok=True)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                (job.path / PID).unlink(missing_ok=True)
                return
            message = f"no job can run on the Ray cluster: {str(error.cause)[:300]}"
            self.trouble = error.cause if isinstance(error.cause, UsageError) else WorkFailed(message, hint=SEE)
            raise self.trouble from None
        except ray.exceptions.RayError as error:
            raise WorkFailed(f"its node of the Ray cluster died: {type(error).__name__}") from error


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
