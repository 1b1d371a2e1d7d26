"""A probe of a bisection as a job: two commits and today's target as files, so that any machine can try one.

Both commits are built and timed on one device, in pairs. What comes back are ratios, never times.
"""

import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from loop.base.documents.files import to_json
from loop.base.documents.sums import read_sealed, write_sealed
from loop.base.errors import UsageError, WorkFailed
from loop.base.interrupts import flagged
from loop.base.processes import Tick, finish
from loop.base.screen import Screen
from loop.bisect.builds import Builder, Exported, Untestable
from loop.bisect.trying import CorrectnessProbe, LatencyProbe, Logs, Probed, Prober, Question, Tries, observed
from loop.jobs.folder import Job, JobFolder, hashes, identity, prepare
from loop.jobs.groups import group_of
from loop.model.base import Model
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.model.dtypes import Device
from loop.model.jobs import JobRun
from loop.model.target import Workload
from loop.repository.reading import export
from loop.repository.worktree import IGNORED
from loop.steps.setting import choose_threads, open_bench, trusted_setting
from loop.timing.readiness import hold_device
from loop.workers.bench import Bench

TODAY, TASKS = "today", "probes"
PREFIX, KEPT = "bisect-", 50
"""How the ids of such jobs begin, and how many that have ended are kept."""
BUILD_LIMIT_S = 600.0
TTL_S = 1800.0
"""A probe that takes longer is ended."""
RunJobs = Callable[[Sequence[JobFolder]], Generator[Tick, None, None]]
"""Has jobs done, wherever there is room: their folders hold what came of them."""


class ProbeTask(Model):
    """What a job tries: `probes/NUMBER.json` beside the files of the commits."""

    format: Literal[1] = 1
    """Format number."""
    variant: str
    """The variant in question."""
    metric: Literal["latency", "correctness"]
    """What is asked of it."""
    emulated: bool = False
    """Whether it runs under the emulator."""
    compiler: str = ""
    """What builds it today; a machine without it says nothing of a commit."""
    device: Device
    """What it runs on."""
    threads: int | None = None
    """CPU threads of each process; None: as many as that machine has cores, less one."""
    workloads: tuple[Workload, ...]
    """Today's."""
    seed: int
    """Of the values, and of the order in which sides take turns."""
    candidate: Candidate
    """The commit to be tried."""
    against: Candidate
    """What a latency is held against."""
    count: int
    """Observations that are wanted; 0: as many as the gate needs for a verdict on each workload."""

    @property
    def question(self) -> Question:
        """As a prober takes it."""
        return Question(self.candidate, self.count, self.against)


def show(task: Path, screen: Screen) -> int:
    """`loop job run probes/3.json`: try a commit, print what was observed as JSON; the exit code."""
    try:
        asked, root = read_sealed(ProbeTask, task), task.absolute().parent.parent
    except OSError as error:
        raise UsageError(
            f"{task}: {error.strerror}", hint="a job of `loop bisect --executor` holds one"
        ) from error
    setting = trusted_setting(root / TODAY, screen)
    with flagged(), ExitStack() as stack:
        bench = stack.enter_context(open_bench(setting, asked.device, choose_threads(asked.threads)))
        builder = Builder(
            bench, [Exported(root), Exported(root)], asked.variant, BUILD_LIMIT_S, emulated=asked.emulated
        )
        finish(hold_device(bench, stack))
        answer = _found(asked, bench, builder)
    screen.data(to_json(answer, None))
    return 0


def _found(asked: ProbeTask, bench: Bench, builder: Builder) -> Probed:
    """What is observed here."""
    kind = CorrectnessProbe if asked.metric == "correctness" else LatencyProbe
    prober = kind(bench, builder, asked.workloads, asked.seed)
    logs: dict[str, tuple[float, ...]] = {}

    def tries() -> Tries:
        if asked.count or not isinstance(prober, LatencyProbe):
            return (yield from prober.tried(asked.question))
        blocks = yield from prober.ends(asked.candidate, asked.against)
        logs.update((name, tuple(values)) for name, values in blocks.items())
        return ()

    answer: Probed = finish(observed(tries()))
    return answer.model_copy(update={"logs": logs})


@dataclass
class Spread(Prober):
    """Probes as jobs of an executor, each with both of its commits on a device of its own."""

    run: RunJobs
    folder: Path
    """Today's target."""
    staging: Path
    """An empty folder, where the commits are written out."""
    terms: ProbeTask
    """What all probes have in common; the rest is set for each."""
    workloads: Sequence[Workload]
    ran: list[JobRun] = field(default_factory=list)
    """What became of its jobs."""
    asked: int = 0
    """Jobs so far."""
    group: str = ""
    """Devices that the search is about: those of its first answer. Ratios of others are not taken."""

    def tried(self, asked: Question) -> Tries:
        """One question, as the only one of its round."""
        (answer,) = yield from self.many([asked])
        if answer.status == "broken":
            raise Untestable(answer.reason)
        return answer.values

    def ends(self, bad: Candidate, good: Candidate) -> Generator[Tick, None, Logs]:
        """One job times both ends. Raises Untestable."""
        (answer,) = yield from self.many([Question(bad, 0, good)])
        if answer.status != "measured":
            raise Untestable(answer.reason)
        return answer.logs

    def many(self, questions: Sequence[Question]) -> Generator[Tick, None, list[Probed]]:
        """The answers to all of a round, at the same time."""
        jobs = [self._job(question) for question in questions]
        yield from self.run(jobs)
        self.ran += [job.ran for job in jobs]
        return [self._comparable(job, _answer(job)) for job in jobs]

    def _comparable(self, job: JobFolder, answer: Probed) -> Probed:
        """The answer; of a latency on devices of another group it is lost."""
        if answer.status == "lost" or self.terms.metric == "correctness" or job.where is None:
            return answer
        group = group_of(job.where)
        self.group = self.group or group
        why = f"job {job.id} ran on {group}, and this search is about {self.group}"
        return answer if group == self.group else Probed(status="lost", reason=why)

    def _job(self, question: Question) -> JobFolder:
        """The job of a question, in this search alone: another day the devices may be others."""
        self.asked += 1
        task = self.terms.model_copy(
            update={
                "workloads": tuple(self.workloads),
                "seed": self.terms.seed + self.asked,
                "candidate": question.candidate,
                "against": question.against,
                "count": question.count,
            }
        )
        path = self.staging / TASKS / f"{self.asked}.json"
        path.parent.mkdir(exist_ok=True)
        write_sealed(path, task)
        folders = [self._written(question.candidate), self._written(question.against), self._today()]
        files = [path, *(file for folder in dict.fromkeys(folders) for file in sorted(folder.rglob("*")))]
        digests = hashes(self.staging, files)
        words, on_cpu = ("job", "run", str(path.relative_to(self.staging))), task.device == "cpu"
        job = Job(
            id=PREFIX + identity(words, digests, within=str(self.staging)),
            words=words,
            title=f"bisect: try {question.candidate.short} beside {question.against.short}",
            files=digests,
            needs_gpu=not on_cpu,
            alone=on_cpu and task.metric == "latency",
            programs=(task.compiler,) if task.compiler else (),
            ttl_s=TTL_S,
        )
        return prepare(job, self.staging, [self.staging / name for name in digests])

    def _written(self, candidate: Candidate) -> Path:
        """The files of a commit."""
        place = self.staging / candidate.commit
        if candidate.commit == UNCOMMITTED:
            return self._today()
        return place if place.exists() else export(self.folder, candidate.commit, place)

    def _today(self) -> Path:
        place = self.staging / TODAY
        if not place.exists():
            shutil.copytree(self.folder, place, ignore=IGNORED)
        return place


def _answer(job: JobFolder) -> Probed:
    """What a job said; one that came to no answer is lost, and says nothing of its commit."""
    try:
        return Probed.model_validate(job.answer(), strict=False)
    except (WorkFailed, ValidationError) as error:
        return Probed(status="lost", reason=f"job {job.id}: {error}")
