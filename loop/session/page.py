"""The sections of a session's report. Markdown, HTML, terminal and JSON all print these; so does a summary.

To add one, write a function of a `View` that yields sections and list it in `FOLDS`. A terminal
prints a section with `screen=True` at the end of the session. `--json` prints all.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.actions import ACTIONS
from loop.base.errors import UsageError
from loop.bisect import section as bisecting
from loop.gate.model import BuildOutput, DeviceOutput, NumpyOutput, TorchOutput
from loop.jobs.folder import group_devices
from loop.learning.prediction import prediction_table
from loop.model.change import jobs_of
from loop.model.output import CommandOutput, MeasureOutput, VerifyOutput, outputs_of, read_output
from loop.model.profile import Profile
from loop.model.record import Finished, SessionHead, SessionRecord, latest_attempts
from loop.money import section as spending
from loop.optimize import section as changing
from loop.profile.actions import (
    describe_leaf,
    facts_table,
    kernels_table,
    note_lines,
    parallelism_table,
    total_lines,
)
from loop.profile.model import ParallelismOutput, ProfileOutput
from loop.proving.actions import known_good_table, trust_sentences
from loop.report import findings
from loop.report import format as say
from loop.report.figures.ratios import draw_ratios
from loop.report.figures.roofline import draw_roofline, find_roof
from loop.report.figures.svg import Figure
from loop.report.markdown import drop_empty_columns, escape_prose, inline_code, plain_text, shortened
from loop.report.sections import Line, Section, SizeLimit, sections_as_markdown
from loop.report.templates import markdown_environment
from loop.session.first_screen import first_screen, not_exercised_sentences
from loop.session.objective import GRADE_RULES
from loop.timing.against_baseline import call_lines, sensor_lines


@dataclass(frozen=True)
class View:
    """Everything that the report of a session is made from."""

    record: SessionRecord
    finished: Sequence[Finished]
    recall_lines: Callable[[Finished], Sequence[str]] = lambda record: ()
    """Takes a failed step; returns lines about the same failure in earlier sessions."""

    @property
    def head(self) -> SessionHead:
        """What was known when the session began."""
        return self.record.head

    @property
    def profiles(self) -> list[Profile]:
        """All profiles that the steps made."""
        return [profile for output in outputs_of(self.finished, ProfileOutput) for profile in output.profiles]


def render_session(templates: Path, view: View) -> tuple[str, tuple[Figure, ...]]:
    """A session's report as Markdown, and its figures. `templates`: the folder of report.md.j2."""
    folds: dict[str, list[Section]] = {}
    for name, section in sections_by_fold(view):
        folds.setdefault(name, []).append(section)
    ratios_figure = draw_ratios(view.record.verdicts, view.head.baseline)
    values = {
        "title": f"{view.head.target}: session {view.head.id} {view.record.status}",
        "first": first_screen(view.record, view.finished),
        "picture": ratios_figure,
        "folds": folds,
        "baseline": view.head.baseline,
    }
    text = markdown_environment(templates).get_template("report.md.j2").render(view=values).rstrip() + "\n"
    figures = (ratios_figure, *(part.figure for parts in folds.values() for part in parts))
    return text, tuple(figure for figure in figures if figure is not None)


def sections_by_fold(view: View) -> Iterator[tuple[str, Section]]:
    """(fold, section) of every section with content. A fold is a collapsible chapter of the report."""
    for name, section_makers in FOLDS.items():
        for make_sections in section_makers:
            yield from ((name, section) for section in make_sections(view) if section)


def correctness_sections(view: View) -> Iterator[Section]:
    """The checks of each variant against the float64 reference."""
    has_verified_change = changing.has_change(view.finished, "verified")
    note_if_empty = "Only changes were verified." if has_verified_change else "Nothing was verified."
    return findings.correctness_sections(view.finished, note_if_empty)


def speed_sections(view: View) -> Iterator[Section]:
    """Every timed variant against the baseline, and how it was timed; or why nothing was timed. Then each
    variant against its known-good build."""
    finished, baseline = view.finished, view.head.baseline
    roof = find_roof(view.profiles)
    tables = list(findings.speed_sections(view.record.verdicts, finished, baseline, roof))
    yield from tables or [Section(f"Speed against {baseline}", note=_why_not_timed(finished))]
    call_texts = tuple(line for output in outputs_of(finished, MeasureOutput) for line in call_lines(output))
    if call_texts:
        note = "How each side was called. Short calls of different kinds differ by what an empty one takes:"
        yield Section(note=note, lines=call_texts)
    if sensors := sensor_lines(finished, baseline):
        note = "The GPU while each was timed, with all that is done between the samples:"
        yield Section(note=note, lines=sensors)
    note = (
        "Against the last build with which all gates passed, in fresh processes of both, block after block until "
        "the evidence is enough:"
    )
    if table := known_good_table(view.record.verdicts):
        yield Section("Speed against the known good", note=note, table=table)


def _why_not_timed(finished: Sequence[Finished]) -> str:
    """A sentence on why no variant was timed against the baseline: `Only changes were timed`; else that all are
    wrong, else the reason of the last timing step that did not pass."""
    timing_steps = [record for record in latest_attempts(finished) if record.action == "kernel.measure"]
    if changing.has_change(finished, "timed") and not timing_steps:
        return "Only changes were timed."
    verified_variants = [checks for output in outputs_of(finished, VerifyOutput) for checks in output.variants]
    unfinished_steps = [record for record in timing_steps if record.status != "passed"]
    if verified_variants and not any(checks.is_right for checks in verified_variants):
        reason = "no variant is right, and a wrong kernel has no speed"
    elif unfinished_steps:
        last = unfinished_steps[-1]
        reason = last.skipped_because if last.status == "skipped" else last.message.rstrip(".")
    elif verified_variants:
        reason = "no step of this session measured speed"
    else:
        reason = "nothing was verified, so nothing was timed"
    return f"Nothing was measured: {reason}."


def sections_of_actions(view: View, *, modelled: bool = False) -> Iterator[Section]:
    """Sections that actions define themselves. `modelled`: only estimates for other GPUs; else only the rest."""
    for record in latest_attempts(view.finished):
        action = ACTIONS.get(record.action)
        if action is not None and action.section is not None:
            output = read_output(record, action.output)
            section = action.section(output) if output else None
            if section is not None and section.modelled == modelled:
                yield section


def modelled_gpu_sections(view: View) -> Iterator[Section]:
    """Estimates for GPUs that this machine does not have."""
    parts = list(sections_of_actions(view, modelled=True))
    yield from parts or [Section(note="Nothing is modelled: no variant was compiled for a GPU.")]


def lines_or_note(title: str, lines: Sequence[Line], note: str) -> list[Section]:
    """One section of these lines; without any, of `note`, which says what that means."""
    return [Section(title, note="" if lines else note, lines=tuple(lines))]


def not_run_section(view: View) -> list[Section]:
    """Steps, variants and checks that were not run, with the reason."""
    lines = not_exercised_sentences(view.record, view.finished)
    return lines_or_note("Not exercised", lines, "Everything that was planned was run.")


LONGEST_MESSAGE = 110
"""Characters of a message in the table. A failed step's whole message is printed below the table."""
LONGEST_INLINE_MESSAGE = 600
"""A failed step's message longer than this many characters goes into a code block."""


def steps_section(view: View) -> Iterator[Section]:
    """A table of all steps: status, time, share of the total time, outcome."""
    records = latest_attempts(view.finished)
    total_s = sum(record.seconds for record in records)
    heads = ("Step", "Status", ">Took", ">Of all steps", "Outcome")
    rows = []
    for record in records:
        attempt_text = f" (attempt {record.attempt})" if record.attempt > 1 else ""
        if record.status == "skipped":
            reason = shortened(record.skipped_because, LONGEST_MESSAGE)
            rows.append((record.label, f"skipped{attempt_text}", "-", "-", reason))
            continue
        excess_text = f", over its {say.seconds(record.budget_s)}" if record.is_over_budget else ""
        status, message = record.status + excess_text + attempt_text, shortened(record.message, LONGEST_MESSAGE)
        times = say.seconds(record.seconds), say.share(record.seconds, total_s)
        rows.append((record.label, status, *times, message))
    table = drop_empty_columns(heads, rows)
    between_text = f"Between the steps `loop` itself took {say.seconds(view.record.own_seconds)}."
    yield Section("Each step", note=between_text if table else "No step has ended.", table=table)


def failed_step_sections(view: View) -> Iterator[Section]:
    """A section for each failed step: message, hint, earlier failures, printed output."""
    for record in latest_attempts(view.finished):
        if record.status == "failed":
            lines = [f"What usually cures it: {record.hint}"] if record.hint else []
            lines += [text[:1].upper() + text[1:] for text in view.recall_lines(record)]
            note = f"`{record.label}` failed: {record.message}"
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


def jobs_section(view: View) -> Iterator[Section]:
    """The groups of equal devices that ran jobs."""
    lines = []
    for name, device_jobs in group_devices(jobs_of(view.finished)).items():
        devices = say.count(len({job.uuid for job in device_jobs}), "device")
        lines.append(f"{name}: {devices}, {say.count(len(device_jobs), 'job')}")
    if lines:
        note = "Ratios are paired on one device. Raw times of two devices never stand beside each other."
        yield Section(note=note, lines=tuple(lines))


def bottleneck_sections(view: View) -> Iterator[Section]:
    """Each variant's worst workload, the advice (`leaf`) of the rule that fits its profile, and the profile."""
    profiles = view.profiles
    outputs = outputs_of(view.finished, ParallelismOutput)
    occupancies = [occupancy for output in outputs for occupancy in output.fillings]
    yield Section(figure=draw_roofline(profiles, view.head.baseline))
    for leaf, workload in map(describe_leaf, profiles):
        when = f", for `{leaf.when}`" if leaf.when and leaf.when != "true" else ""
        lines = [f"Look with: {leaf.tool}"] if leaf.tool else []
        lines += [f"Fix: {leaf.fix}", f"Expected gain: {leaf.gain}"] if leaf.fix else []
        lines += [f"Not decided: {text}" for text in leaf.undecided]
        worst_text = f"`{leaf.variant}` does worst on {workload}. Severity: {leaf.severity}. "
        yield Section(note=f"{worst_text}What holds it back: {leaf.bottleneck}{when}.", lines=tuple(lines))
    if not profiles:
        yield Section(note="Nothing was profiled.")
    yield Section(table=facts_table(profiles), after=note_lines(profiles))
    if kernel_table := kernels_table(profiles):
        note = (
            "One call of each on the device, profiled alone, with warm caches, at the clocks that there were; its "
            "times stand beside the measurements above, not in their place. Shares are of the peak, a warp's "
            "waits of its time:"
        )
        yield Section(note=note, table=kernel_table, after=total_lines(profiles))
    if parallelism := parallelism_table(occupancies):
        note = "Pieces of work that may run at the same time, against the places for them:"
        yield Section(note=note, table=parallelism)


def memory_sections(view: View) -> Iterator[Section]:
    """Predicted time and cost of the session, next to the actual values; then its learnings: facts that later
    sessions can use."""
    note = (
        "What was expected when the session began, from the sessions before it; from its authors' estimates where "
        "there were none. Four times in five the actual figure should lie in the interval."
    )
    table = prediction_table(view.record, view.finished)
    note = note if table else "This session stored no prediction."
    yield Section("Predicted and actual", note=note, table=table)
    yield from lines_or_note("Learnings", view.record.learnings, "The records show nothing worth keeping.")


def origin_sections(view: View) -> Iterator[Section]:
    """The grade with the rule of all grades, the commands that repeat the session and its report, and where the
    raw records are."""
    rule_lines = tuple(f"`{letter}`: {meaning}" for letter, meaning in GRADE_RULES)
    note = f"{view.record.grade_reason}. The rule; the lowest letter that applies is given:"
    yield Section(f"Grade {view.record.grade}", note=note, lines=rule_lines)
    head = view.head
    if view.record.status in ("aborted", "paused"):
        yield Section("Go on with this session", code=(head.resume_command,))
    note = "The whole session, with the same inputs, and this report from its records:"
    yield Section("Each number", note=note, code=(head.repeat_command(), head.report_command))
    places = "`journal.jsonl` in the folder of the session; verdicts, cost and grade: `record.json`."
    lines: list[Line] = [f"Steps, times and outputs: {places}"]
    for record in latest_attempts(view.finished):
        if record.artifacts:
            names = ", ".join(f"`{name}`" for name in record.artifacts)
            lines.append(f"Raw samples of `{record.label}`: {names}")
    yield Section(lines=tuple(lines))


FOLDS: dict[str, tuple[Callable[[View], Iterable[Section]], ...]] = {
    "Evidence": (
        correctness_sections,
        speed_sections,
        sections_of_actions,
        lambda view: bisecting.sections(view.finished),
        lambda view: changing.sections(view.finished),
    ),
    "Steps": (steps_section, failed_step_sections, not_run_section),
    "Environment": (environment_section,),
    "Controls": (lambda view: lines_or_note("", trust_sentences(view.finished), "No control was run."),),
    "Jobs": (jobs_section,),
    "Bottleneck": (bottleneck_sections,),
    "Model of the GPU": (modelled_gpu_sections,),
    "Money": (lambda view: spending.sections(view.record.bill, view.record.seconds, view.finished),),
    "Memory": (memory_sections,),
    "How to have each number again": (origin_sections,),
}
"""Title of each fold of the report to the functions that yield its sections."""


DEFAULT_LIMIT_BYTES = 65_536
"""Default limit in bytes: a GitHub comment holds 65,536 characters, a job summary 1 MiB."""
FIRST_SECTIONS = 3
"""The first sections (cause, next action, variants) precede the output of failed steps."""
SUMMARY_SIZES = tuple(SizeLimit(rows, 500, 12) for rows in (2000, 1000, 500, 200, 100, 40, 15, 5, 1))
"""Sizes of a summary's tables and lists, tried from the largest until it fits."""
_LINK = re.compile(r"https?://[!-;=?-~]{1,290}")
_MENTION = re.compile(r"\\.|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|(?P<mention>@(?=\w)|#(?=\d))", re.DOTALL)
"""An escaped character, code between backticks (these two stay), or the sign of a GitHub mention."""


def markdown_summary(
    record: SessionRecord, finished: Sequence[Finished], limit: int = DEFAULT_LIMIT_BYTES, link: str = ""
) -> str:
    """A session in at most `limit` bytes of Markdown. `link`: to the whole report; UsageError if it is none."""
    if link and not _LINK.fullmatch(link):
        raise UsageError(f"--link {shortened(link, 60)}: expected a web address", hint="--link https://...")
    summary, target = first_screen(record, finished), record.head.target
    headline = without_mentions(escape_prose(summary.headline))
    # A CI workflow searches for this mark to update its earlier comment: `<!-- loop: my-kernel -->`.
    comment_mark = f"<!-- loop: {re.sub(r'[^A-Za-z0-9._]+', '-', target)[:80].strip('-')} -->"
    title = escape_prose(f"`{target}` on {record.head.device_text}")
    begin = f"{comment_mark}\n### {title}\n\n**{headline}**\n"
    whole_report = inline_code(record.head.report_command) + (f", or [here](<{link}>)" if link else "")
    end = f"\nThe whole report: {whole_report}.\n"
    step_sections = failed_step_sections(View(record, finished))
    sections = [*summary.sections[:FIRST_SECTIONS], *step_sections, *summary.sections[FIRST_SECTIONS:]]
    note = ""
    for size in SUMMARY_SIZES:
        body = without_mentions(sections_as_markdown(sections, size))
        text = f"{begin}\n{body}\n{note}{end}"
        if len(text.encode()) <= limit:
            return text
        note = "\nShortened for length.\n"
    return f"{begin}{note}{end}"


def without_mentions(text: str) -> str:
    """The Markdown, with `@name` and `#12` split so that GitHub notifies no user and links no issue."""
    return _MENTION.sub(lambda match: f"{match[0]}<!-- -->" if match["mention"] else match[0], text)
