"""The executor `ray`: each job is a task of a Ray cluster, which gives it a node and a GPU.

Jobs travel as tar archives, because nodes share no folder. On a cluster with several GPU models
only one model is used, since timings of different models are not comparable.
"""

import contextlib
import importlib.util
import io
import os
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loop
from loop.base.errors import UsageError, WorkFailed
from loop.base.processes import python_path
from loop.jobs.executor import Slot, run_job
from loop.jobs.folder import EXIT_CODE, LOCK, SOURCES, TASK, JobFolder, detect_devices, jobs_folder
from loop.jobs.local import split_cores

NO_NODE_LIMIT_S = 120.0  # Seconds that a cluster may have no usable node before the job fails.
POLL_S = 0.5
QUIET_OPTIONS = {"logging_level": "ERROR", "log_to_driver": False}
ADDRESS_VARIABLE = "RAY_ADDRESS"
GPU_MODEL_PREFIX = "accelerator_type:"
"""Prefix of Ray's resource for a GPU model; its amount is the number of nodes with that model."""
NODES_HINT = "`ray status` shows the nodes; each needs this loop"


def run_on_node(version: str, job_id: str, packed: bytes, *, gpu: bool) -> bytes:
    """Run a packed job on the node that Ray chose; Ray calls this there. Returns packed results.
    `version`: the sender's `loop`; UsageError if the node's differs. `packed`: see `pack`."""
    if version != loop.__version__:
        message = f"{os.uname().nodename} has loop {loop.__version__}, here it is {version}"
        raise UsageError(message, hint=f"pip install kernel-loop=={version} there")
    detect_devices.cache_clear()  # Ray gives a process another GPU with the next task.
    job = JobFolder(jobs_folder() / f"ray-{os.getpid()}" / job_id)
    shutil.rmtree(job.path, ignore_errors=True)
    unpack(packed, job.path)
    all_cores = os.sched_getaffinity(0)
    try:
        # The job's processes inherit the cores. Ray gives the same process another job later.
        os.sched_setaffinity(0, (own_cores() if gpu else ()) or all_cores)
        run_job(job, device=detect_devices(gpu=gpu)[0])
        return pack(job.path, without=(TASK, SOURCES, LOCK))
    finally:
        os.sched_setaffinity(0, all_cores)
        shutil.rmtree(job.path.parent, ignore_errors=True)


def own_cores() -> list[int]:
    """In a Ray task: the cores for a job on the task's GPU, so that jobs on other GPUs of the node
    have others. Empty (all cores) if the node has few cores, or if Ray does not number its GPUs."""
    ray = importlib.import_module("ray")
    context = ray.get_runtime_context()
    node = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    gpu_count = int(node["Resources"].get("GPU", 0))
    (gpu_number,) = map(str, context.get_accelerator_ids()["GPU"][:1] or [""])
    if not gpu_number.isdecimal() or int(gpu_number) >= gpu_count:
        return []
    return split_cores(gpu_count)[int(gpu_number)]


def check() -> None:
    """Raises UsageError where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--executor ray needs the package `ray`", "pip install 'kernel-loop[ray]'")


def slots(width: int) -> list[Slot]:
    """Slots on the cluster of RAY_ADDRESS, else on one running here, else on a new local one. Also
    sends what this process prints to stderr. Raises UsageError: no answer, or other versions."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:  # Ray replaces signal handlers; restore ours, which stop cleanly.
        ray = importlib.import_module("ray")
        try:
            if not ray.is_initialized():
                ray.init(address=os.environ.get(ADDRESS_VARIABLE, "auto"), **QUIET_OPTIONS)
        except ConnectionError as error:
            if ADDRESS_VARIABLE in os.environ:
                hint = f"start it with `ray start --head`, or unset {ADDRESS_VARIABLE}"
                message = f"no Ray cluster at {os.environ[ADDRESS_VARIABLE]}: {error}"[:300]
                raise UsageError(message, hint=hint) from error
            ray.init(include_dashboard=False, **QUIET_OPTIONS)
        except RuntimeError as error:
            message = f"the Ray cluster is of another version: {error}"[:600]
            raise UsageError(message, hint="pip install 'ray==...'") from error
    finally:
        for number, handler in handlers.items():
            with contextlib.suppress(ValueError):  # Not the main thread: handlers are unchanged.
                signal.signal(number, handler)
    sys.stdout = sys.stderr  # Ray prints why workers died. Results go to the screen's own stream.
    return [RaySlot(ray) for _ in range(width)]


class RaySlot(Slot):
    """Runs one task at a time on a Ray cluster."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        resources = ray.cluster_resources()
        self._has_gpu = resources.get("GPU", 0) >= 1
        models = [name for name in resources if name.startswith(GPU_MODEL_PREFIX)]
        self.gpu_model = max(models, key=lambda name: (resources[name], name), default="")
        """Ray's resource for the model of most nodes; empty without a GPU."""

    def run_in_slot(self, job: JobFolder) -> None:
        """Run the job as a Ray task and unpack its results. Returns early if it is cancelled.
        Raises WorkFailed if Ray lost it; if no job can run on the cluster, also sets `trouble`."""
        ray, needs_gpu = self.ray, job.task.needs_gpu and self._has_gpu
        # A tiny amount of the model's resource binds the task to a node with that model.
        resources = {self.gpu_model: 0.001} if needs_gpu and self.gpu_model else {}
        options = {"num_cpus": 1, "num_gpus": int(needs_gpu), "resources": resources}
        # No retries by Ray: the executor repeats jobs and counts the tries.
        options |= {"max_retries": 0, "runtime_env": {"env_vars": task_variables()}}
        start = ray.remote(run_on_node).options(**options).remote
        task = start(loop.__version__, job.id, pack(job.path, without=(LOCK,)), gpu=needs_gpu)
        usable_at, is_cancelled = time.monotonic(), False
        while not ray.wait([task], timeout=POLL_S)[0]:
            if job.is_cancelled and not is_cancelled:
                ray.cancel(task)
                is_cancelled = True
            if ray.cluster_resources().get("GPU" if needs_gpu else "CPU", 0) >= 1:
                usable_at = time.monotonic()
            elif time.monotonic() - usable_at > NO_NODE_LIMIT_S:
                ray.cancel(task)
                message = "no node of the Ray cluster is left that a job may use"
                self.trouble = WorkFailed(message, hint=NODES_HINT)
                raise self.trouble
        try:
            unpack(ray.get(task), job.path)
        except ray.exceptions.TaskCancelledError:
            return
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):  # Cancelled while it ran.
                return
            message = f"no job can run on the Ray cluster: {error.cause}"[:300]
            is_usage_error = isinstance(error.cause, UsageError)
            self.trouble = error.cause if is_usage_error else WorkFailed(message, hint=NODES_HINT)
            raise self.trouble from None
        except ray.exceptions.RayError as error:
            raise WorkFailed(f"Ray lost its process or its node: {type(error).__name__}") from error


def task_variables() -> dict[str, str]:
    """Variables that a task gets besides its node's own: the folders of `loop` and its package."""
    names = {"LOOP_CACHE", "LOOP_STATE"} & os.environ.keys()
    return {**{name: os.environ[name] for name in names}, "PYTHONPATH": python_path()}


def pack(folder: Path, without: Sequence[str] = ()) -> bytes:
    """A tar archive of a folder, without the top-level names in `without`."""
    buffer = io.BytesIO()
    # The exit code comes last: a job with an exit code has all its results.
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.iterdir(), key=lambda path: path.name == EXIT_CODE):
            if path.name not in without:
                archive.add(path, path.name)
    return buffer.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Extract an archive of `pack`. Raises tarfile.TarError for a path outside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
