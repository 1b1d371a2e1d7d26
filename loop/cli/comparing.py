"""`loop sessions compare` and `trend`: sessions beside each other, by what they state themselves."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.places import Project, project
from loop.base.screen import Screen, fold, width
from loop.cli.sessions import say_damage
from loop.gate.model import TorchOutput
from loop.learning import comparison_section as page
from loop.learning import trend_section as trend_page
from loop.learning.comparison import compare
from loop.learning.trend import trends
from loop.library import targets
from loop.model.comparison import Judged, Revisions, Seen
from loop.model.history import RESOURCES, RecordedSession
from loop.model.index import SessionRow
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished, SessionHead, SessionRecord, latest_attempts
from loop.report.markdown import Table
from loop.report.plain import shortened
from loop.report.sections import LONGEST, Section, cleaned, markdown, pieces
from loop.repository import between
from loop.session import recorded
from loop.store import index, sessions
from loop.store import recorded as elsewhere
from loop.store.sessions import SessionFolder

MOST = len(page.LETTERS)


def compare_sessions(
    names: Sequence[str], target: Path | None, screen: Screen, *, as_json: bool, as_markdown: bool
) -> int:
    """Two or more sessions beside each other, in the order in which they are named."""
    chosen = project(target, Path.cwd())
    if not 2 <= len(names) <= MOST:
        raise UsageError(
            f"{len(names)} sessions named: expected 2 to {MOST}", hint="loop sessions compare last~1 last"
        )
    found = [_find(chosen.sessions, name) for name in names]
    ids = [one.id for one in found]
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise UsageError(f"{twice} is named twice", hint="`loop sessions list` names the others")
    made = compare(found, _revisions(found, chosen))
    if as_json:
        screen.data(to_json({"schema_version": 1, **made.model_dump(mode="json")}))
    elif as_markdown:
        screen.data(markdown(f"Sessions {', '.join(ids)}", page.sections(made, wide=True)))
    else:
        show(page.sections(made), screen)
    return ExitCode.OK


def show_trend(
    target: Path | None, variant: str | None, last: int, screen: Screen, *, as_json: bool, as_markdown: bool
) -> int:
    """The ratios of the target's variants, session by session."""
    chosen = project(target, Path.cwd())
    name = targets.target(chosen).value.name
    rows = [row for row in index.rows(chosen.sessions, last=last, target=name) if row.status and not row.recorded]
    seen = [one for row in rows if (one := _readable(chosen.sessions, row)) is not None]
    series = trends(seen, variant)
    known = sorted({word for one in seen for word in (*one.verdicts, *one.incorrect)})
    if variant is not None and not series:
        hint = f"one of {', '.join(known)}" if known else "`loop run session` measures"
        raise UsageError(f"no session of {name} has judged a variant {variant!r}", hint=hint)
    stated = [_recorded(one) for one in elsewhere.every(chosen.sessions) if one.row.speedup is not None]
    if as_json:
        screen.data(to_json({"schema_version": 1, "target": name, "series": series, "recorded": stated}))
    elif not series:
        screen.say(f"no session of {name} in {chosen.sessions} has a ratio; `loop run session` measures")
    elif as_markdown:
        screen.data(markdown(f"Ratios of {name} over sessions", trend_page.sections(series, stated)))
    else:
        show(trend_page.sections(series, stated), screen)
    say_damage(index.damaged(chosen.sessions), screen)
    return ExitCode.OK


def show(sections: Iterable[Section], screen: Screen) -> None:
    """Sections on a terminal, folded at its width."""
    room = width(screen.out)
    for number, one in enumerate(filter(None, sections)):
        screen.data(("\n" if number else "") + fold(shortened(one.title, LONGEST), room))
        for line in one.lines:
            screen.data(fold(f"  {shortened(line, LONGEST)}", room))
        if one.table is not None:
            _table(cleaned(one.table), one.wrap, screen)
        for line in one.after:
            screen.data(fold(f"  {shortened(line, LONGEST)}", room))


def _table(content: Table, wrap: int, screen: Screen) -> None:
    """A table; where its first column gives way and that is not enough, in pieces."""
    for number, piece in enumerate(pieces(content, width(screen.out)) if wrap == 0 else (content,)):
        if number:
            screen.data("")
        screen.table([column.title for column in piece.columns], piece.rows, wrap=wrap)


def _find(root: Path, name: str) -> Seen:
    """A session by id, beginning of an id, `last` or `last~1`; recorded ones too."""
    known = recorded.find(root, name)
    if known is not None:
        return _recorded(known)
    folder = sessions.find(root, name)
    return _seen(folder, timed=True)


def _readable(root: Path, row: SessionRow) -> Seen | None:
    """None where its record cannot be read: lists name such a session, a trend goes on without."""
    try:
        return _seen(SessionFolder(root / row.id), timed=False, torch=row.environment.torch)
    except LoopError:
        return None


def _seen(folder: SessionFolder, *, timed: bool, torch: str | None = None) -> Seen:
    """`timed`: with what only its journal says: latencies, patterns, and the version of torch."""
    head, record = folder.head(), folder.record()
    steps = latest_attempts(folder.finished()) if timed else ()
    versions = [one.version for one in outputs_of(steps, TorchOutput) if one.version]
    ended = _ended(record) if record else {}
    fields = {
        "id": folder.id,
        "started": head.started,
        "status": "open",
        "target": head.target,
        "device": head.device,
        "baseline": head.baseline,
        "plan": head.plan.plan.name,
        "sets": head.plan.plan.workloads,
        "facts": _facts(head, versions[-1] if versions else torch),
        "commit": head.revision.commit,
        "dirty": head.revision.dirty,
        "verdicts": _verdicts(record, outputs_of(steps, MeasureOutput)) if record else {},
        "patterns": _patterns(steps),
        **ended,
    }
    return Seen.model_validate(fields)


def _ended(record: SessionRecord) -> dict[str, object]:
    """What only a session that has ended says."""
    worse = {
        one.variant: None for one in record.verdicts if (one.against, one.verdict) == ("known_good", "slower")
    }
    wrong = {one.variant: None for one in record.verdicts if one.verdict == "incorrect"}
    return {
        "status": record.status,
        "reason": record.reason,
        "grade": record.grade,
        "seconds": record.seconds,
        "usd": record.bill.usd,
        "charges": record.bill.charges,
        "unmeasured": record.bill.unmeasured,
        "regressed": tuple(worse),
        "incorrect": tuple(wrong),
    }


def _facts(head: SessionHead, torch: str | None) -> dict[str, str | None]:
    machine, gpu = head.machine, head.device == "cuda"
    return {
        "machine": machine.name,
        "system": machine.system,
        "processor": machine.processor,
        "cores": str(machine.cores),
        "memory": f"{machine.memory_gb:.0f} GiB",
        "threads": str(head.threads),
        "GPU": (machine.gpus[0] if machine.gpus else None) if gpu else "not used",
        "driver": machine.driver if gpu else "not used",
        "torch": torch or machine.torch,
        "nvcc": machine.nvcc or "none",
        "compiler": machine.compiler or "none",
        "Python": machine.python,
        "loop": head.loop_version,
    }


def _verdicts(record: SessionRecord, outputs: Sequence[MeasureOutput]) -> dict[str, dict[str, Judged]]:
    """Verdicts against the baseline; a wrong variant has no other."""
    timings = [m for one in outputs for m in one.measurements]
    clock = {(one.variant, one.workload.name): one for one in timings if one.against == "baseline"}
    found: dict[str, dict[str, Judged]] = {}
    for one in record.verdicts:
        if one.against == "baseline":
            timing = clock.get((one.variant, one.workload))
            found.setdefault(one.variant, {})[one.workload] = Judged(
                verdict=one.verdict,
                ratio=one.ratio,
                interval=one.interval,
                reference_us=timing.reference_us if timing and one.ratio else None,
                candidate_us=timing.candidate_us if timing and one.ratio else None,
            )
    return found


def _patterns(steps: Sequence[Finished]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in steps:
        found[one.pattern] = found.get(one.pattern, 0.0) + one.seconds
    return found


def _revisions(found: Sequence[Seen], chosen: Project) -> list[Revisions]:
    """Each session's sources against those of the one before; a recorded one has none."""
    own = [one for one in found if not one.recorded]
    return [between.revisions(chosen.target, (a.id, b.id), (a.commit, b.commit)) for a, b in pairwise(own)]


def _recorded(session: RecordedSession) -> Seen:
    row, gpu = session.row, session.gpu.get("name")
    base = elsewhere.row_of(session)
    return Seen(
        id=session.id,
        recorded=True,
        status="recorded",
        reason=row.outcome,
        grade=row.grade or "",
        device="cuda" if gpu else None,
        facts={"GPU": str(gpu) if gpu else None},
        seconds=row.minutes * 60,
        usd=base.usd if any(row.usd_of(one) is not None for one in RESOURCES) else None,
        charges=base.charges,
        unmeasured=base.unmeasured,
        patterns={name: minutes * 60 for name, minutes in session.patterns.items()},
        stated=tuple(_stated(session)),
    )


def _stated(session: RecordedSession) -> list[str]:
    row = session.row
    said = [f"recorded as {row.id}{f', {session.when}' if session.when else ''}: {row.outcome}"]
    if row.speedup is not None:
        wrong = "; its output was wrong, so it is no speed" if row.correct is False else ""
        said.append(f"ratio {row.speedup:g}x of PyTorch's speed{wrong}")
    elif row.correct is not None:
        said.append(f"output {'right' if row.correct else 'wrong'}")
    said += [f"{label}: {text}" for label, text in (("build", row.build), ("note", row.note)) if text]
    return [re.sub(r"\s+", " ", line) for line in said]
