"""`loop sessions import`, and what is shown of a session that was recorded elsewhere."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError
from loop.base.places import project
from loop.base.screen import Screen, fold, seconds_text, width
from loop.library import definitions, histories
from loop.library.contradictions import NAMES, contradictions
from loop.model.history import RESOURCES, Contradiction, History, RecordedSession
from loop.store import recorded

BEGINNING = "recorded-"


def import_sessions(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Make a session of each row of a history; nothing is written where any file has a mistake."""
    chosen = project(target, Path.cwd())
    read = [histories.read_history(path).value for path in histories.paths(name)]
    names = {one.value.number: one.value.name for one in definitions.patterns(chosen).values()}
    new, known = [], []
    for history in read:
        made, there = recorded.put(chosen.sessions, histories.recorded(history, names))
        new += made
        known += there
    found = [one for history in read for one in contradictions(history)]
    if as_json:
        fields = {"schema_version": 1, "imported": new, "already": known, "contradictions": found}
        screen.data(to_json(fields))
        return ExitCode.OK
    _tell(read, new, known, found, screen)
    return ExitCode.OK


def _tell(
    read: Sequence[History],
    new: Sequence[str],
    known: Sequence[str],
    found: Sequence[Contradiction],
    screen: Screen,
) -> None:
    for history in read:
        screen.say(f"{history.source}{f', {history.when}' if history.when else ''}")
    for one in new:
        screen.data(one)
    count = f"{len(new)} session{'' if len(new) == 1 else 's'} imported"
    screen.say(count + (f", {len(known)} {'was' if len(known) == 1 else 'were'} there" if known else ""))
    if found:
        screen.say("\nTheir reports do not agree with their rows; the rows are kept:")
        screen.table(("session", "stated", "derived"), [(c.session, c.stated, c.derived) for c in found])


def find(root: Path, name: str) -> RecordedSession | None:
    """A recorded session by id, its beginning, or what its report calls it. Raises LoopError for several."""
    exact = root / name / recorded.NAME
    if name.startswith(BEGINNING) and exact.is_file() and exact.parent.parent == root:
        return recorded.read(exact.parent)
    matches = [one for one in recorded.every(root) if _called(one, name)]
    if len(matches) > 1:
        hint = f"one of {', '.join(one.id for one in matches)}"
        how = "begin so" if name.startswith(BEGINNING) else "are called so"
        raise LoopError(f"{name}: {len(matches)} sessions {how}", hint=hint)
    return matches[0] if matches else None


def _called(one: RecordedSession, name: str) -> bool:
    if name.startswith(BEGINNING):
        return one.id.startswith(name)
    return one.row.id.lower() == name.lower() != "last"


def show(session: RecordedSession, root: Path, screen: Screen, *, as_json: bool) -> int:
    """One recorded session: its rows, and where its reports contradict them."""
    family = [one for one in recorded.every(root) if one.history == session.history]
    history = recorded.history_of(family)
    found = [one for one in contradictions(history) if one.session == session.row.id]
    if as_json:
        fields = {"schema_version": 1, "recorded": session, "contradictions": found}
        screen.data(to_json(fields))
        return ExitCode.OK
    columns = width(screen.out)
    for line in _lines(session, len(family)):
        screen.data(fold(line, columns))
    _tables(session, screen)
    for one in found:
        screen.data(fold(f"contradiction: {one.stated}, but {one.derived}", columns))
    return ExitCode.OK


def _lines(session: RecordedSession, of: int) -> Iterator[str]:
    row, when = session.row, f", {session.when}" if session.when else ""
    yield f"{session.id}: {row.outcome}"
    yield f"recorded elsewhere as {row.id}, {session.position} of {of}{when}: {session.source}"
    costs = [(NAMES[one], row.usd_of(one)) for one in RESOURCES]
    stated = [f"{name} ${usd:.2f}" for name, usd in costs if usd is not None]
    where = session.gpu.get("name", "another machine")
    yield f"{row.minutes:g} min on {where}; {', '.join(stated) or 'no cost stated'}"
    if row.speedup is not None:
        wrong = "; its output was wrong" if row.correct is False else ""
        yield f"speed-up as stated {row.speedup:g}{wrong}"
    for label, text in (("grade", row.grade), ("build", row.build), ("note", row.note)):
        if text:
            yield f"{label}: {text}"


def _tables(session: RecordedSession, screen: Screen) -> None:
    if session.steps:
        screen.data("")
        rows = [
            (one.get("step", ""), _took(one.get("target_s")), _took(one.get("actual_s")), one.get("status", ""))
            for one in session.steps
        ]
        screen.table(("step", "target", "actual", ""), rows, wrap=0)
    if session.measurements:
        heads = list(dict.fromkeys(key for one in session.measurements for key in one))
        screen.data("")
        screen.table(heads, [[one.get(key, "-") for key in heads] for one in session.measurements], wrap=0)
    if session.steps or session.measurements:
        screen.data("")


def _took(seconds: object) -> str:
    return seconds_text(float(seconds)) if isinstance(seconds, int | float) else "-"
