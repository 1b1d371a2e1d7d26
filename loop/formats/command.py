"""`loop targets inspect`: what a task of somebody else's is, what of it runs here, and what does not."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.screen import Screen, table_lines, width
from loop.formats import table
from loop.formats.hindrances import SHOWN, Here, hindrances, installed, runs
from loop.formats.model import (
    Case,
    ForeignTask,
    InspectedFolder,
    InspectedOne,
    InspectedTask,
    Judging,
    UnreadableTask,
)
from loop.formats.table import Unreadable
from loop.machine.gpus import gpus
from loop.machine.machine import available_memory

YES_NO = {True: "yes", False: "no", None: "unknown"}


def inspect(path: Path, form: str | None, screen: Screen, *, as_json: bool) -> int:
    """Describe the task at a path, or list those below it. Nothing of theirs is imported or run."""
    here = Here(tuple(gpu.name for gpu in gpus().usable), available_memory(), installed)
    if table.is_foreign(path) or not path.is_dir() or table.claimed(path, form):
        task = table.load(path, form)
        columns = width(screen.out)
        screen.data(to_json(InspectedOne(**described(task, here))) if as_json else page(task, here, columns))
        return ExitCode.OK
    found = list(table.tasks_below(path, form))
    if not found:
        table.recognised(path, form)  # Says what it looked for.
    if as_json:
        screen.data(to_json(InspectedFolder(tasks=tuple(_any(task, here) for task in found))))
    else:
        screen.table(("format", "task", "cases", "run here", "why not"), _rows(path, found, here))
        for one in found:
            if isinstance(one, Unreadable):
                screen.data(f"cannot be read: {one.error.message}")
        for line in _totals(found, here):
            screen.say(line)
    return ExitCode.USAGE if any(isinstance(task, Unreadable) for task in found) else ExitCode.OK


def described(task: ForeignTask, here: Here) -> dict[str, Any]:
    """A task's fields, with what runs on this machine and what does not."""
    found = hindrances(task, here)
    names = tuple(case.name for case in runs(task, found))
    return {**dict(task), "runs": names, "hindrances": tuple(found)}


def page(task: ForeignTask, here: Here, columns: int) -> str:
    """A task in lines for a terminal."""
    _, *rows = table_lines(("", ""), [fact for fact in _facts(task, here) if fact[1]], columns)
    return "\n".join(rows)


def _facts(task: ForeignTask, here: Here) -> Iterator[tuple[str, str]]:
    title = next(known.title for known in table.FORMATS if known.name == task.format)
    found = hindrances(task, here)
    able = runs(task, found)
    yield "format", f"{title}: {task.why}"
    yield "task", f"{task.name} ({task.path})"
    yield "answer", f"{task.entry}, in {', '.join(task.languages)}"
    yield "reference", task.reference
    yield "cases", _cases(task.cases)
    yield from (("", _case(case)) for case in task.cases[:SHOWN])
    yield "types", ", ".join(task.dtypes)
    yield "right if", _judging(task.judging)
    yield "timed by", task.timing.method
    yield (
        "",
        f"cache cleared: {YES_NO[task.timing.cold_cache]}; fresh inputs: {YES_NO[task.timing.fresh_inputs]}; "
        + (f"timed outputs checked: {YES_NO[task.timing.checked]}"),
    )
    yield "score", task.timing.score
    yield "made for", ", ".join(task.made_for)
    yield "licence", f"{task.licence.name} ({task.licence.file or 'no licence file found'})"
    yield "runs here", f"{len(able)} of {len(task.cases)} cases" if task.cases else "its own commands only"
    for need in found:
        some = (
            ""
            if need.cases is None
            else f" ({', '.join(need.cases[:SHOWN])}{' ...' if need.cases[SHOWN:] else ''})"
        )
        yield "needs", f"{need.what}{some}"
    for hint in task.hints:
        yield "note", hint


def _cases(cases: tuple[Case, ...]) -> str:
    timed = sum("time" in case.use for case in cases)
    return f"{len(cases)}, {timed} of them timed" if cases else "known to its own commands only"


def _case(case: Case) -> str:
    arguments = " ".join(f"{name}={value}" for name, value in case.arguments.items())
    if case.inputs is None:
        return f"{case.name}: {arguments or 'inputs are known only when its generator runs'}"
    shapes = ", ".join(f"{tensor.name} {list(tensor.shape)} {tensor.dtype}" for tensor in case.inputs)
    return f"{case.name}: {shapes}"


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


def _any(one: ForeignTask | Unreadable, here: Here) -> InspectedTask | UnreadableTask:
    if isinstance(one, ForeignTask):
        return InspectedTask(**described(one, here))
    return UnreadableTask(format=one.format, path=one.path, error=one.error.message, hint=one.error.hint)


def _rows(root: Path, found: Iterable[ForeignTask | Unreadable], here: Here) -> Iterator[tuple[str, ...]]:
    for one in found:
        name = str(one.path.relative_to(root) if one.path.is_relative_to(root) else one.path)
        if isinstance(one, Unreadable):
            yield one.format, name, "", "", "cannot be read"
            continue
        needs = hindrances(one, here)
        why = ", ".join(dict.fromkeys(need.kind for need in needs))
        yield one.format, name, str(len(one.cases)), str(len(runs(one, needs))), why


def _totals(found: list[ForeignTask | Unreadable], here: Here) -> Iterator[str]:
    tasks = [task for task in found if isinstance(task, ForeignTask)]
    able = sum(bool(runs(task, hindrances(task, here))) for task in tasks)
    yield f"{len(tasks)} tasks, {able} of them run here; {len(found) - len(tasks)} cannot be read"
    kinds = Counter(kind for task in tasks for kind in {need.kind for need in hindrances(task, here)})
    if kinds:
        yield "in the way: " + ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
