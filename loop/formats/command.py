"""`loop targets inspect`: what a task of somebody else's is, what of it runs here, and what does not."""

from collections.abc import Iterator
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.screen import Screen, table_lines, width
from loop.formats import table
from loop.formats.hindrances import hindrances
from loop.formats.model import Inspected, Judging
from loop.machine.gpus import gpus

SHOWN = 3
"""Cases that are shown."""
YES_NO = {True: "yes", False: "no", None: "unknown"}


def inspect(path: Path, form: str | None, screen: Screen, *, as_json: bool) -> int:
    """Describe the task at a path. Nothing of theirs is imported or run."""
    task = table.load(path, form)
    needs = hindrances(task, len(gpus().usable))
    names = () if needs else tuple(case.name for case in task.cases)
    inspected = Inspected(**dict(task), runs=names, hindrances=tuple(needs))
    if as_json:
        screen.data(to_json(inspected))
    else:
        _, *lines = table_lines(("", ""), [fact for fact in _facts(inspected) if fact[1]], width(screen.out))
        screen.data("\n".join(lines))
    return ExitCode.OK


def _facts(task: Inspected) -> Iterator[tuple[str, str]]:
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
