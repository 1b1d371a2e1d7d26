"""Report sections on how a session went: steps, failures, environment; and the rules of its grade."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from loop.gate.model import BuildOutput, DeviceOutput, NumpyOutput, TorchOutput
from loop.model.output import MeasureOutput, outputs_of
from loop.model.plan import Plan, Reached
from loop.model.profile import Profile
from loop.model.record import Finished, SessionHead, SessionRecord, Status, latest_attempts
from loop.profile.model import ProfileOutput
from loop.report import format as say
from loop.report.markdown import columns, filled_table, plain_text, shortened
from loop.report.sections import Section

Recalled = Callable[[Finished], Sequence[str]]
"""Takes a failed step; returns lines about the same failure in earlier sessions."""


@dataclass(frozen=True)
class View:
    """Everything that the report of a session is made from."""

    record: SessionRecord
    finished: Sequence[Finished]
    recalled: Recalled = lambda record: ()
    """Lines about the same failure in earlier sessions."""
    calibration: str = ""

    @property
    def head(self) -> SessionHead:
        """What was known when the session began."""
        return self.record.head

    @property
    def profiles(self) -> list[Profile]:
        """All profiles that the steps made."""
        return [profile for output in outputs_of(self.finished, ProfileOutput) for profile in output.profiles]


LONGEST_MESSAGE = 110
"""Characters of a message in the table. A failed step's whole message is printed below the table."""
LONGEST_SAID = 600
"""A failed step's message longer than this many characters goes into a code block."""


def steps(view: View) -> Iterator[Section]:
    """A table of all steps: status, time, share of the total time, outcome."""
    records = latest_attempts(view.finished)
    whole = sum(record.seconds for record in records)
    heads = columns("Step", "Status", ">Took", ">Of all steps", "Outcome")
    table = filled_table(heads, [_step_row(record, whole) for record in records])
    own = f"Between the steps `loop` itself took {say.seconds(view.record.own_seconds)}."
    yield Section("Each step", note=own if table else "No step has ended.", table=table)


def _step_row(record: Finished, whole: float) -> tuple[str, ...]:
    """A step's row of the table. `whole`: seconds of all steps together."""
    ran = record.status != "skipped"
    late = f", over its {say.seconds(record.budget_s)}" if ran and record.is_over_budget else ""
    again = f" (attempt {record.attempt})" if record.attempt > 1 else ""
    return (
        name_of(record),
        record.status + late + again,
        say.seconds(record.seconds) if ran else "-",
        say.share(record.seconds, whole) if ran else "-",
        shortened(record.message if ran else record.skipped_because, LONGEST_MESSAGE),
    )


def name_of(record: Finished) -> str:
    """`pattern/step`, for messages."""
    return f"{record.pattern}/{record.step}"


def failed_steps(view: View) -> Iterator[Section]:
    """A section for each failed step: message, hint, earlier failures, printed output."""
    for record in latest_attempts(view.finished):
        if record.status == "failed":
            cure = [f"What usually cures it: {record.hint}"] if record.hint else []
            recalled = (text[:1].upper() + text[1:] for text in view.recalled(record))
            yield Section(
                note=f"`{name_of(record)}` failed: {record.message}",
                lines=(*cure, *recalled),
                code=step_log(record),
                language="text",
            )


def step_log(record: Finished) -> tuple[str, ...]:
    """Lines that a step printed: a traceback, the end of a command's output, or a long message."""
    texts = [text for name in ("traceback", "output") if isinstance(text := record.output.get(name), str)]
    many = len(record.message.strip().splitlines()) > 1
    texts += [record.message] if many or len(record.message) > LONGEST_SAID else []
    lines = [line for text in texts for line in text.replace("\r\n", "\n").strip("\n").split("\n")]
    return tuple(
        plain_text(line.rstrip("\r").rpartition("\r")[2]) for line in lines
    )  # A progress bar's last state.


def environment(view: View) -> Iterator[Section]:
    """The environment in which the report's numbers were measured."""
    facts = environment_of(view.record.head, view.finished)
    yield Section(lines=tuple(f"{label}: {text}" for label, text in facts if text))


def environment_of(head: SessionHead, finished: Sequence[Finished]) -> Iterator[tuple[str, str]]:
    """Label and text of each fact about machine, software and sources; the text is empty if unknown."""
    machine, revision = head.machine, head.revision
    yield "Machine", f"{machine.name}, {machine.system}"
    cores = say.count(machine.cores, "core")
    yield "Processor", f"{machine.processor}, {cores}, {machine.memory_gb:.0f} GiB of memory"
    yield "GPU", machine.gpus_text
    for gpu in outputs_of(finished, DeviceOutput):
        if gpu.capability:
            runs = f"its driver runs CUDA {gpu.cuda}" if gpu.cuda else ""
            yield "Compute capability", ", ".join(filter(None, [gpu.capability, gpu.uuid, runs]))
    # The last version is printed: what the imported package reported, else the installed torch's.
    torch = [machine.torch, *(output.version for output in outputs_of(finished, TorchOutput))]
    numpy = [output.version for output in outputs_of(finished, NumpyOutput)]
    known = (("torch", [*filter(None, torch)]), ("NumPy", [*filter(None, numpy)]))
    packages = (f"{name} {versions[-1]}" for name, versions in known if versions)
    yield "Python", ", ".join((machine.python, *packages))
    used = [build.compiler for output in outputs_of(finished, BuildOutput) for build in output.builds]
    cuda = f"nvcc {machine.nvcc}" if machine.nvcc else "no CUDA compiler"
    yield "Compilers", ", ".join(dict.fromkeys([*(used or [machine.compiler or "no C++ compiler"]), cuda]))
    threads = next((run.threads for run in outputs_of(finished, MeasureOutput) if run.threads), head.threads)
    yield "Ran on", f"{head.device}, {say.count(threads, 'thread')} a process, base seed {head.seed}"
    sources = "not under version control"
    if revision.commit is not None:
        branch = f" on {revision.branch}" if revision.branch else ""
        changed = f": {', '.join(revision.changed)}" if revision.changed else ""
        state = f"with changes that are not committed{changed}" if revision.dirty else "nothing changed since"
        sources = f"commit {revision.commit[:12]}{branch}, {state}"
    yield "Sources", sources
    yield "Loop", head.loop_version


def device(head: SessionHead) -> str:
    """Where the session ran: `cpu`, or `cuda (NVIDIA H200)`."""
    gpus = head.machine.gpus if head.device == "cuda" else ()
    return f"{head.device} ({gpus[0]})" if gpus else head.device


SLACK_S, SLACK = 60.0, 0.1
"""Most time outside the steps that is plausible: 60 s plus a tenth of the steps' own time."""


def own_seconds(wall_s: float, steps_s: float) -> float:
    """Seconds of a session outside its steps; 0 if `wall_s` contradicts `steps_s`.

    Wall time jumps when the clock is set or the machine sleeps. `steps_s` is from a monotonic clock.
    """
    outside = wall_s - steps_s
    return max(0.0, outside) if -1.0 <= outside <= SLACK_S + SLACK * steps_s else 0.0


RULE: tuple[tuple[str, str], ...] = (
    ("A", "every gate passed, the plan's objective is reached, session and steps kept their time"),
    ("B", "every gate passed; the session or a step took longer than planned"),
    ("C", "every gate passed; the objective is missed, or what it asks for is not known"),
    ("D", "a gate failed, or an output is incorrect or cannot be judged"),
    ("F", "the session was aborted, or judged nothing"),
    ("-", "the session is paused; it is graded when it has ended"),
)
"""Grade and its condition; the lowest grade that applies is given. Without an objective: gates and time."""


def grade(
    plan: Plan,
    status: Status,
    reason: str,
    finished: Iterable[Finished],
    objective: Reached | None,
    seconds: float,
) -> tuple[str, str]:
    """The grade and its reason. `status`, `reason`: the session's own. `seconds`: its duration."""
    steps = [record for record in latest_attempts(finished) if record.status != "skipped"]
    if status == "paused":
        return "-", f"paused: {reason}"
    if status in ("aborted", "skipped") or not steps:
        return "F", reason
    if status == "failed":
        return "D", reason
    missed = [f"the objective is missed: {part.words}" for part in (objective.missed if objective else ())]
    reasons, planned = list(missed), 60 * plan.budget.minutes
    if seconds > planned:
        reasons.append(f"the session took {say.seconds(seconds)} of {say.seconds(planned)}")
    late = [f"{name_of(r)} ({r.seconds:.1f} of {r.budget_s:g} s)" for r in steps if r.is_over_budget]
    if late:
        reasons.append(f"over budget: {', '.join(late)}")
    if reasons:
        return "C" if missed else "B", "Every gate passed, but " + "; ".join(reasons)
    reached = "reached its objective, and " if objective else ""
    return "A", f"The session {reached}passed every gate within its time"
