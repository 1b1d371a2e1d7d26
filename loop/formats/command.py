"""`loop targets inspect`: what a task of somebody else's is, what of it runs here, and what does not."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.screen import Screen, table_lines, width
from loop.formats import table
from loop.formats.hindrances import hindrances
from loop.formats.model import ForeignTask, InspectedFolder, InspectedOne, InspectedTask, Judging, UnreadableTask
from loop.machine.gpus import gpus

SHOWN = 3
"""Cases that are shown."""
YES_NO = {True: "yes", False: "no", None: "unknown"}


def inspect(path: Path, form: str | None, screen: Screen, *, as_json: bool) -> int:
    """Describe the task at a path, or list those below it. Nothing of theirs is imported or run."""
    if table.is_foreign(path) or not path.is_dir() or table.claimed(path, form):
        task = inspected(table.load(path, form))
        if as_json:
            screen.data(to_json(InspectedOne(**dict(task))))
        else:
            _, *lines = table_lines(("", ""), [fact for fact in _facts(task) if fact[1]], width(screen.out))
            screen.data("\n".join(lines))
        return ExitCode.OK
    tasks = [_any(task) for task in table.tasks_below(path, form)]
    if not tasks:
        table.recognised(path, form)  # Says what it looked for.
    unreadable = [task for task in tasks if isinstance(task, UnreadableTask)]
    if as_json:
        screen.data(to_json(InspectedFolder(tasks=tuple(tasks))))
    else:
        screen.table(("format", "task", "cases", "run here", "why not"), [_row(path, task) for task in tasks])
        for failed in unreadable:
            screen.data(f"cannot be read: {failed.error}")
        for line in _totals([task for task in tasks if isinstance(task, InspectedTask)], len(unreadable)):
            screen.say(line)
    return ExitCode.USAGE if unreadable else ExitCode.OK


def inspected(task: ForeignTask) -> InspectedTask:
    """A task with what runs on this machine and what does not."""
    needs = hindrances(task, len(gpus().usable))
    names = () if needs else tuple(case.name for case in task.cases)
    return InspectedTask(**dict(task), runs=names, hindrances=tuple(needs))


def _any(task: ForeignTask | table.Unreadable) -> InspectedTask | UnreadableTask:
    if isinstance(task, ForeignTask):
        return inspected(task)
    return UnreadableTask(format=task.format, path=task.path, error=task.error.message, hint=task.error.hint)


def _facts(task: InspectedTask) -> Iterator[tuple[str, str]]:
    """Label and text of each line about a task; lines without a text are left out."""
    timing = task.timing
    yield "format", f"{table.of(task.format).title}: {task.why}"
    yield "task", f"{task.name} ({task.path})"
    yield "answer", f"{task.entry}, in {', '.join(task.languages)}"
    yield "reference", task.reference
    yield "cases", f"{len(task.cases)}, {sum('time' in case.use for case in task.cases)} of them timed"
    for case in task.cases[:SHOWN]:
        arguments = " ".join(f"{name}={value}" for name, value in case.arguments.items())
        yield "", f"{case.name}: {arguments or 'inputs are known only when its generator runs'}"
    yield "types", ", ".join(task.dtypes)
    yield "right if", _judging(task.judging)
    yield "timed by", timing.method
    cleared = f"cache cleared: {YES_NO[timing.cold_cache]}; fresh inputs: {YES_NO[timing.fresh_inputs]}"
    yield "", f"{cleared}; timed outputs checked: {YES_NO[timing.checked]}"
    yield "score", timing.score
    yield "made for", ", ".join(task.made_for)
    yield "runs here", f"{len(task.runs)} of {len(task.cases)} cases"
    yield from (("needs", need.what) for need in task.hindrances)
    yield from (("note", hint) for hint in task.hints)


def _judging(judging: Judging) -> str:
    words = []
    if judging.checker:
        words.append(f"its own checker says so: {judging.checker}")
    if judging.atol is not None and judging.rtol is not None:
        joint = "or" if judging.either else "+"
        words.append(f"error <= {judging.atol:g} {joint} {judging.rtol:g} x |expected|")
    if judging.matched_ratio < 1:
        words.append(f"for {100 * judging.matched_ratio:g} % of elements")
    if judging.cap is not None:
        words.append(f"no error above {judging.cap:g}")
    return "; ".join([*words, *([judging.note] if judging.note else [])])


def _row(root: Path, task: InspectedTask | UnreadableTask) -> tuple[str, ...]:
    name = str(task.path.relative_to(root) if task.path.is_relative_to(root) else task.path)
    if isinstance(task, UnreadableTask):
        return task.format, name, "", "", "cannot be read"
    why = ", ".join(dict.fromkeys(need.kind for need in task.hindrances))
    return task.format, name, str(len(task.cases)), str(len(task.runs)), why


def _totals(tasks: Sequence[InspectedTask], unreadable: int) -> Iterator[str]:
    able = sum(bool(task.runs) for task in tasks)
    yield f"{len(tasks)} tasks, {able} of them run here; {unreadable} cannot be read"
    kinds = Counter(kind for task in tasks for kind in {need.kind for need in task.hindrances})
    if kinds:
        yield "in the way: " + ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
