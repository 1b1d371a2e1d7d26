"""What the report says of the course of a session: steps, patterns, machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loop.gate.model import BuildOutput, DeviceOutput, NumpyOutput, TorchOutput
from loop.model.output import MeasureOutput, outputs_of
from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, Machine, Revision, SessionHead, latest_attempts
from loop.report import format as say
from loop.report.markdown import Table, columns, filled
from loop.report.plain import plain, shortened

LONGEST_MESSAGE = 110
"""Longer ones are cut in the table; a failed step's is printed whole below it."""
LONGEST_SAID = 600
"""Longer messages of failed steps are folded."""


@dataclass(frozen=True)
class Trouble:
    """A step that failed, with all it said."""

    step: str
    message: str
    hint: str | None
    seen: tuple[str, ...] = ()
    """What earlier sessions say of it."""
    log: tuple[str, ...] = ()
    """Lines of output, where there is more than a message of one line."""


def steps(finished: Sequence[Finished]) -> Table | None:
    """Every step in its order, with its share of the time of all; None when none has ended."""
    records = latest_attempts(finished)
    whole = sum(record.seconds for record in records)
    heads = columns("Step", "Status", ">Took", ">Of all steps", "Outcome")
    return filled(heads, [_step_row(record, whole) for record in records])


def _step_row(record: Finished, whole: float) -> tuple[str, ...]:
    ran = record.status != "skipped"
    late = f", over its {say.seconds(record.budget_s)}" if ran and record.over_budget else ""
    again = f" (attempt {record.attempt})" if record.attempt > 1 else ""
    return (
        name_of(record),
        record.status + late + again,
        say.seconds(record.seconds) if ran else "-",
        say.share(record.seconds, whole) if ran else "-",
        shortened(record.message if ran else record.skipped_because, LONGEST_MESSAGE),
    )


def answers(finished: Sequence[Finished], plan: ResolvedPlan) -> Iterator[str]:
    """Which pattern was run in answer to what came of another; a chain that follows the plan has none."""
    names = [name for _, name in dict.fromkeys((one.run, one.pattern) for one in latest_attempts(finished))]
    for place, name in enumerate(names):
        if plan.find(name).planned and name not in names[:place]:
            continue
        asked = ((before, one) for before in reversed(names[:place]) for one in plan.find(before).pattern.next)
        found = next(((before, one.when) for before, one in asked if one.pattern == name), None)
        if found:
            yield f"{name} answered {found[0]}: `{found[1]}`"


def name_of(record: Finished) -> str:
    """Pattern and step."""
    return f"{record.pattern}/{record.step}"


Recalled = Callable[[Finished], Sequence[str]]
"""From a step that failed to what earlier sessions say of it, in lines."""


def troubles(finished: Sequence[Finished], recalled: Recalled = lambda record: ()) -> tuple[Trouble, ...]:
    """The steps that failed."""
    failed = [record for record in latest_attempts(finished) if record.status == "failed"]
    return tuple(
        Trouble(name_of(record), record.message, record.hint, tuple(recalled(record)), log(record))
        for record in failed
    )


def log(record: Finished) -> tuple[str, ...]:
    """What a step printed: a traceback, the end of a command's output, or its message where that is long."""
    told = [record.output.get(name) for name in ("traceback", "output")]
    texts = [text for text in told if isinstance(text, str)]
    many = len(record.message.strip().splitlines()) > 1
    texts += [record.message] if many or len(record.message) > LONGEST_SAID else []
    lines = [line for text in texts for line in text.replace("\r\n", "\n").strip("\n").split("\n")]
    return tuple(plain(line.rstrip("\r").rpartition("\r")[2]) for line in lines)  # A progress bar's last state.


def environment(head: SessionHead, finished: Sequence[Finished]) -> tuple[tuple[str, str], ...]:
    """What the numbers of this report stand beside: label and text."""
    return tuple((label, text) for label, text in _environment(head, finished) if text)


def _environment(head: SessionHead, finished: Sequence[Finished]) -> Iterator[tuple[str, str]]:
    machine = head.machine
    yield "Machine", f"{machine.name}, {machine.system}"
    cores = say.count(machine.cores, "core")
    yield "Processor", f"{machine.processor}, {cores}, {machine.memory_gb:.0f} GiB of memory"
    yield "GPU", _gpu(machine)
    for one in outputs_of(finished, DeviceOutput):
        if one.capability:
            runs = f"its driver runs CUDA {one.cuda}" if one.cuda else ""
            yield "Compute capability", ", ".join(filter(None, [one.capability, one.uuid, runs]))
    yield "Python", f"{machine.python}{_packages(machine, finished)}"
    yield "Compilers", ", ".join(_compilers(head, finished))
    yield (
        "Ran on",
        f"{head.device}, {say.count(_threads(head, finished), 'thread')} a process, base seed {head.seed}",
    )
    yield "Sources", _revision(head.revision)
    yield "Loop", head.loop_version


def device(head: SessionHead) -> str:
    """Where the session ran: `cpu`, or `cuda (NVIDIA H200)`."""
    gpus = head.machine.gpus if head.device == "cuda" else ()
    return f"{head.device} ({gpus[0]})" if gpus else head.device


def _gpu(machine: Machine) -> str:
    """The GPU that everything runs on, and the others that a CUDA program sees; empty without any."""
    if not machine.gpus:
        return ""
    first, *others = machine.gpus
    more = f", the first of {len(machine.gpus)} that CUDA shows (then {', '.join(others)})" if others else ""
    return f"{first}{more}{f', driver {machine.driver}' if machine.driver else ''}"


def _packages(machine: Machine, finished: Sequence[Finished]) -> str:
    """Versions as the packages told them when they were imported, else torch's as it is installed."""
    torch = [machine.torch, *(one.version for one in outputs_of(finished, TorchOutput))]
    numpy = [one.version for one in outputs_of(finished, NumpyOutput)]
    known = (("torch", torch), ("NumPy", numpy))
    return "".join(f", {name} {told[-1]}" for name, versions in known if (told := [*filter(None, versions)]))


def _compilers(head: SessionHead, finished: Sequence[Finished]) -> list[str]:
    used = [build.compiler for output in outputs_of(finished, BuildOutput) for build in output.builds]
    names = used or ([head.machine.compiler] if head.machine.compiler else ["no C++ compiler"])
    cuda = [f"nvcc {head.machine.nvcc}" if head.machine.nvcc else "no CUDA compiler"]
    return list(dict.fromkeys([*names, *cuda]))


def _threads(head: SessionHead, finished: Sequence[Finished]) -> int:
    return next((output.threads for output in outputs_of(finished, MeasureOutput) if output.threads), head.threads)


def _revision(revision: Revision) -> str:
    if revision.commit is None:
        return "not under version control"
    branch = f" on {revision.branch}" if revision.branch else ""
    if not revision.dirty:
        return f"commit {revision.commit[:12]}{branch}, nothing changed since"
    changed = f": {', '.join(revision.changed)}" if revision.changed else ""
    return f"commit {revision.commit[:12]}{branch}, with changes that are not committed{changed}"
