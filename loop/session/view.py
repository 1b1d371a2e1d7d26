"""Report sections on how a session went: steps, failures, environment; and the rules of its grade."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from loop.gate.model import BuildOutput, DeviceOutput, NumpyOutput, TorchOutput
from loop.model.output import CommandOutput, MeasureOutput, outputs_of, read_output
from loop.model.plan import Plan, Reached
from loop.model.profile import Profile
from loop.model.record import Finished, SessionHead, SessionRecord, Status, latest_attempts
from loop.profile.model import ProfileOutput
from loop.report import format as say
from loop.report.markdown import drop_empty_columns, plain_text, shortened
from loop.report.sections import Section

RecallLines = Callable[[Finished], Sequence[str]]
"""Takes a failed step; returns lines about the same failure in earlier sessions."""


@dataclass(frozen=True)
class View:
    """Everything that the report of a session is made from."""

    record: SessionRecord
    finished: Sequence[Finished]
    recall_lines: RecallLines = lambda record: ()

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
LONGEST_INLINE_MESSAGE = 600
"""A failed step's message longer than this many characters goes into a code block."""


def steps_section(view: View) -> Iterator[Section]:
    """A table of all steps: status, time, share of the total time, outcome."""
    records = latest_attempts(view.finished)
    total_s = sum(record.seconds for record in records)
    heads = ("Step", "Status", ">Took", ">Of all steps", "Outcome")
    table = drop_empty_columns(heads, [_step_row(record, total_s) for record in records])
    between_text = f"Between the steps `loop` itself took {say.seconds(view.record.own_seconds)}."
    yield Section("Each step", note=between_text if table else "No step has ended.", table=table)


def _step_row(record: Finished, total_s: float) -> tuple[str, ...]:
    """A step's row of the table. `total_s`: seconds of all steps together."""
    attempt_text = f" (attempt {record.attempt})" if record.attempt > 1 else ""
    if record.status == "skipped":
        reason = shortened(record.skipped_because, LONGEST_MESSAGE)
        return step_name(record), f"skipped{attempt_text}", "-", "-", reason
    excess_text = f", over its {say.seconds(record.budget_s)}" if record.is_over_budget else ""
    return (
        step_name(record),
        record.status + excess_text + attempt_text,
        say.seconds(record.seconds),
        say.share(record.seconds, total_s),
        shortened(record.message, LONGEST_MESSAGE),
    )


def step_name(record: Finished) -> str:
    """`pattern/step`, for messages."""
    return f"{record.pattern}/{record.step}"


def failed_step_sections(view: View) -> Iterator[Section]:
    """A section for each failed step: message, hint, earlier failures, printed output."""
    for record in latest_attempts(view.finished):
        if record.status == "failed":
            lines = [f"What usually cures it: {record.hint}"] if record.hint else []
            lines += [text[:1].upper() + text[1:] for text in view.recall_lines(record)]
            note = f"`{step_name(record)}` failed: {record.message}"
            yield Section(note=note, lines=tuple(lines), code=step_log(record), language="text")


def step_log(record: Finished) -> tuple[str, ...]:
    """Lines for a failed step's code block: its output's end, or a bug's traceback; and a long message."""
    command_output = read_output(record, CommandOutput)
    texts = [command_output.output if command_output else record.output.get("traceback", "")]
    has_several_lines = len(record.message.strip().splitlines()) > 1
    if has_several_lines or len(record.message) > LONGEST_INLINE_MESSAGE:
        texts.append(record.message)
    lines: list[str] = []
    for text in filter(None, texts):
        for line in text.replace("\r\n", "\n").strip("\n").split("\n"):
            # A progress bar overwrites its line after each `\r`: print its last state.
            lines.append(plain_text(line.rstrip("\r").rpartition("\r")[2]))
    return tuple(lines)


def environment_section(view: View) -> Iterator[Section]:
    """Machine, software and sources of the report's numbers, a line each; unknown ones are left out."""
    head, finished, machine, revision = view.head, view.finished, view.head.machine, view.head.revision
    cores = say.count(machine.cores, "core")
    facts = {"Machine": f"{machine.name}, {machine.system}"}  # Label to text.
    facts["Processor"] = f"{machine.processor}, {cores}, {machine.memory_gb:.0f} GiB of memory"
    facts["GPU"] = machine.gpus_text
    for gpu in outputs_of(finished, DeviceOutput):
        if gpu.capability:
            cuda = f"its driver runs CUDA {gpu.cuda}" if gpu.cuda else ""
            facts["Compute capability"] = ", ".join(filter(None, [gpu.capability, gpu.uuid, cuda]))
    # What an imported package reported counts; else the version of torch that is installed.
    versions = {"torch": machine.torch, "NumPy": None}
    for torch in outputs_of(finished, TorchOutput):
        versions["torch"] = torch.version or versions["torch"]
    for numpy in outputs_of(finished, NumpyOutput):
        versions["NumPy"] = numpy.version or versions["NumPy"]
    packages = (f"{name} {version}" for name, version in versions.items() if version)
    facts["Python"] = ", ".join((machine.python, *packages))
    compilers = [build.compiler for output in outputs_of(finished, BuildOutput) for build in output.builds]
    compilers = compilers or [machine.compiler or "no C++ compiler"]
    compilers.append(f"nvcc {machine.nvcc}" if machine.nvcc else "no CUDA compiler")
    facts["Compilers"] = ", ".join(dict.fromkeys(compilers))
    timed_threads = [output.threads for output in outputs_of(finished, MeasureOutput)]
    threads = say.count(next(filter(None, timed_threads), head.threads), "thread")
    facts["Ran on"] = f"{head.device}, {threads} a process, base seed {head.seed}"
    sources = "not under version control"
    if revision.commit is not None:
        branch = f" on {revision.branch}" if revision.branch else ""
        changed = f": {', '.join(revision.changed)}" if revision.changed else ""
        state = f"with changes that are not committed{changed}" if revision.dirty else "nothing changed since"
        sources = f"commit {revision.commit[:12]}{branch}, {state}"
    facts |= {"Sources": sources, "Loop": head.loop_version}
    yield Section(lines=tuple(f"{label}: {text}" for label, text in facts.items() if text))


def device_text(head: SessionHead) -> str:
    """Where the session ran: `cpu`, or `cuda (NVIDIA H200)`."""
    return f"{head.device} ({head.gpu})" if head.gpu else head.device


def seconds_between_steps(wall_s: float, steps_s: float) -> float:
    """Seconds outside the steps; 0 if implausible: the clock was set, or the machine slept."""
    between_s = wall_s - steps_s
    is_plausible = -1.0 <= between_s <= 60.0 + 0.1 * steps_s
    return max(0.0, between_s) if is_plausible else 0.0


GRADE_RULES: tuple[tuple[str, str], ...] = (
    ("A", "every gate passed, the plan's objective is reached, session and steps kept their time"),
    ("B", "every gate passed; the session or a step took longer than planned"),
    ("C", "every gate passed; the objective is missed, or what it asks for is not known"),
    ("D", "a gate failed, or an output is incorrect or cannot be judged"),
    ("F", "the session was aborted, or judged nothing"),
    ("-", "the session is paused; it is graded when it has ended"),
)
"""Grade and its condition; the lowest grade that applies is given. Without an objective: gates and time."""


def grade_session(
    plan: Plan,
    status: Status,
    reason: str,
    finished: Iterable[Finished],
    objective: Reached | None,
    seconds: float,
) -> tuple[str, str]:
    """The grade by `GRADE_RULES`, and its reason. `seconds`: the session's duration."""
    steps = [record for record in latest_attempts(finished) if record.status != "skipped"]
    if status == "paused":
        return "-", f"paused: {reason}"
    if status in ("aborted", "skipped") or not steps:
        return "F", reason
    if status == "failed":
        return "D", reason
    missed_parts = objective.missed if objective else ()
    flaws = [f"the objective is missed: {part.words}" for part in missed_parts]
    planned_s = 60 * plan.budget.minutes
    if seconds > planned_s:
        flaws.append(f"the session took {say.seconds(seconds)} of {say.seconds(planned_s)}")
    late_steps = [step for step in steps if step.is_over_budget]
    if late_steps:
        texts = [f"{step_name(step)} ({step.seconds:.1f} of {step.budget_s:g} s)" for step in late_steps]
        flaws.append(f"over budget: {', '.join(texts)}")
    if flaws:
        return "C" if missed_parts else "B", "Every gate passed, but " + "; ".join(flaws)
    reached_text = "reached its objective, and " if objective else ""
    if objective and objective.uncompared:
        reached_text = "reached its objective as far as it was judged, and "
    return "A", f"The session {reached_text}passed every gate within its time"
