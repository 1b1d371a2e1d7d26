"""Splits a step into jobs for an executor: each job runs `loop run step` on a copy of the files."""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from loop.base.documents import content_hash, write_atomic
from loop.base.errors import WorkFailed, remark_once
from loop.base.processes import Waiting
from loop.jobs import folder
from loop.jobs.executor import Slot, close_slots, exclude_device, load_executor, run_all
from loop.jobs.folder import Job, JobFolder
from loop.library import targets
from loop.library.definitions import Project
from loop.model.base import Model
from loop.model.measurement import Segment
from loop.model.output import OutputType
from loop.steps.context import Context, Result

START_S = 60.0  # Seconds that a job's process may take beside its step.
MOST_KEPT_FOLDERS = 1000  # Job folders that are kept: a resumed campaign reuses their results.
SAMPLES = f"{folder.RESULTS}/samples.json"  # Path of a step's raw samples in its job's folder.
_SAMPLES = TypeAdapter(dict[str, tuple[Segment, ...]])


@dataclass(frozen=True)
class Part:
    """One job of a step: arguments, variants and workload sets."""

    title: str
    arguments: Model
    variants: Sequence[str]
    sets: Sequence[str]  # Workload sets that are timed; `checks` are only verified.
    checks: Sequence[str] = ()
    measures_time: bool = False  # Whether it measures time: alone on its CPU, on one device group.
    returns_samples: bool = False
    folder: Path | None = None  # Folder to copy to the job, whole; None: the target's own files.
    target: str = "."  # The target's folder inside the copied folder.


def run_jobs(
    context: Context, action: str, parts: Sequence[Part], group: str = ""
) -> Waiting[list[JobFolder]]:
    """Run one job for each part and wait for all; returns them in this order, also those that
    failed. Jobs of this session that are done already are reused. `group`: the only group of
    devices on which jobs may measure time; empty: the group with most jobs."""
    campaign = context.task.campaign
    folder.remove_old_jobs(MOST_KEPT_FOLDERS)
    jobs = [_prepare_job(context, action, part) for part in parts]
    if all(job.state == "done" for job in jobs):
        return jobs
    slots = load_executor(campaign.executor).slots(campaign.width)
    try:
        yield from run_all_comparable(slots, list({job.id: job for job in jobs}.values()), group)
    finally:
        close_slots(slots)
    return jobs


def run_all_comparable(
    slots: Sequence[Slot], jobs: Sequence[JobFolder], group: str
) -> Waiting[None]:
    """Run all jobs, with timings from one group of devices only: `group`; if empty, that of most
    jobs. A timing from another group is repeated elsewhere; the second time, the job is refused."""
    yield from run_all(slots, jobs)
    incomparable = find_incomparable(jobs, group)
    for job, why in incomparable:
        remark_once(f"device {job.device.uuid if job.device else ''} is set aside: {why}")
        exclude_device(slots, job.device)
        job.reset()
    yield from run_all(slots, [job for job, _ in incomparable])
    for job, why in find_incomparable(jobs, group):
        job.reset()
        job.refuse(f"{why}, and ratios of two kinds of devices are not mixed")


def find_incomparable(jobs: Sequence[JobFolder], group: str) -> list[tuple[JobFolder, str]]:
    """Jobs that timed something on a device outside `group`, each with the reason. A group has the
    same model and versions (`Where.group`). Empty: the group that timed most of these jobs."""
    devices = [(job, job.device) for job in jobs if job.task.times]
    group_by_job = {job: device.group for job, device in devices if device}
    counts = Counter(group_by_job.values())
    chosen = group or max(counts, key=counts.__getitem__, default="")
    others = [(job, other) for job, other in group_by_job.items() if other != chosen]
    return [(job, f"it is {other}; the others are {chosen}") for job, other in others]


def _prepare_job(context: Context, action: str, part: Part) -> JobFolder:
    """Create the folder of one job: files (of `part.folder`, else the target's) and a `loop run
    step` command. Its id is their hash, so that this session finds the job again."""
    bench, task = context.bench, context.task
    project = Project(bench.folder, bench.folder / "sessions", bundled=False)
    root = part.folder or bench.folder
    paths = part.folder.rglob("*") if part.folder else targets.source_files(project)
    files = [path for path in sorted(paths) if path.is_file()]
    words = ["run", "step", action, "--json"]
    words += [f"--with={part.arguments.model_dump_json(exclude_defaults=True)}"]
    words += [f"--device={bench.device}", f"--target={part.target}", f"--seed={task.seed}"]
    words += [f"--budget-s={context.budget_s:g}", f"--limit-s={context.kill_after_s:g}"]
    words += [f"--threads={bench.threads}"] if bench.device == "cpu" else []
    words += [f"--samples=../{SAMPLES}"] if part.returns_samples else []
    words += [f"--variant={name}" for name in part.variants]
    words += [f"--workloads={name}" for name in part.sets]
    words += [f"--checks={name}" for name in part.checks]
    hashes = folder.content_hashes(root, files)
    variants = bench.compiled_variants(part.variants).values()
    # Outside a session no other command may reuse the job: its identity is of this process alone.
    owner = task.session or f"{os.getpid()} {time.time()}"
    job = Job(
        id=content_hash([*words, owner, *map(str, hashes.items())])[:24],
        words=tuple(words),
        title=part.title,
        files=hashes,
        needs_gpu=bench.device == "cuda",
        alone=part.measures_time and bench.device == "cpu",
        times=part.measures_time,
        programs=tuple(sorted({variant.build.compiler for variant in variants})),
        ttl_s=context.kill_after_s + START_S,
    )
    return folder.create_job(job, root, files)


def result_of_job(job: JobFolder, kind: type[OutputType]) -> Result[OutputType]:
    """The output of a job's step, as class `kind`, and the raw samples that it returned, if any.
    Raises WorkFailed without an output, RuntimeError with a traceback for a bug of `loop` there."""
    answer = job.read_answer()
    if "error" in answer:
        raise WorkFailed(f"job {job.id}: {answer['error']['message']}", answer["error"]["next"])
    step = answer["steps"][0]
    message = f"job {job.id} ({job.task.title}): {step['message']}"
    if not step["output"]:
        raise WorkFailed(message, hint=step["hint"])
    if "traceback" in step["output"]:
        raise RuntimeError(f"{message}\n{step['output']['traceback']}")
    samples: dict[str, tuple[Segment, ...]] = {}
    with contextlib.suppress(OSError, ValueError):
        samples = _SAMPLES.validate_json((job.path / SAMPLES).read_bytes())
    return Result(kind.model_validate(step["output"], strict=False), samples)


def write_samples(path: Path, samples: Mapping[str, Sequence[Segment]]) -> None:
    """Write a step's samples (keys: `compare`, `measure`) as JSON. LoopError if it cannot."""
    write_atomic(path, _SAMPLES.dump_json({name: tuple(rows) for name, rows in samples.items()}))
