"""`loop patterns drafts`: a failure that came back three times as a pattern, for a person to accept."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import to_json, write_atomic
from loop.base.errors import DefinitionError, ExitCode, LoopError, UsageError, WorkFailed
from loop.base.screen import Screen
from loop.learning import drafts as rule
from loop.learning.drafts import Draft
from loop.learning.failures import cured
from loop.learning.memory import REMEMBERED, change_of
from loop.library import definitions
from loop.library.written import to_yaml
from loop.model.base import Model, Printed
from loop.model.pattern import Pattern
from loop.session.plan import check_pattern
from loop.steps.setting import Setting, read_setting
from loop.store import index
from loop.store.sessions import SessionFolder

SHOW_WHOLE = "loop patterns drafts show"


@dataclass(frozen=True)
class Drafted:
    """A draft and the pattern that it would become."""

    draft: Draft
    pattern: Pattern

    @property
    def text(self) -> str:
        """The pattern as a file."""
        count = len(self.draft.meetings)
        return to_yaml(
            self.pattern, f"Drafted by loop from {count} sessions that failed alike: edit it as you like."
        )


class DraftRow(Model):
    """A pattern drafted from failures that came back."""

    name: str
    """Name that it would have."""
    signature: str
    """By which the failure is known again."""
    text: str
    """That in words."""
    sessions: tuple[str, ...]
    """Where it was met."""
    cured_in: tuple[str, ...]
    """Where it was gone again."""
    pattern: dict[str, Any]
    """The pattern as a file would have it."""


class DraftList(Printed):
    """All drafts."""

    drafts: tuple[DraftRow, ...]
    """Each of them."""


class ShownDraft(Printed, DraftRow):
    """One draft."""


class DraftAccepted(Printed):
    """A draft became a pattern."""

    path: str
    """Its file."""


class DraftDismissed(Printed):
    """A draft is not offered again."""

    dismissed: str
    """Its name."""


def list_drafts(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """All drafts, a row each."""
    found = list(_drafts(read_setting(target)))
    if as_json:
        screen.data(to_json(DraftList(drafts=tuple(DraftRow(**_fields(one)) for one in found))))
    elif not found:
        screen.say(f"no drafts: no failure was met in {rule.TIMES} sessions that has no pattern yet")
    else:
        rows = [(d.pattern.name, len(d.draft.meetings), _cure(d), d.draft.text) for d in found]
        screen.table(("draft", "met", "cured", "failure"), rows)
        screen.say(f"look at one: {SHOW_WHOLE} {found[0].pattern.name}")
    return ExitCode.OK


def offered(setting: Setting) -> tuple[str, ...]:
    """Names of the drafts that wait for a person."""
    return tuple(one.pattern.name for one in _drafts(setting))


def _cure(drafted: Drafted) -> str:
    return f"{len(drafted.draft.cures)} times" if drafted.draft.cures else "never"


def _fields(drafted: Drafted) -> dict[str, Any]:
    return {
        "name": drafted.pattern.name,
        "signature": drafted.draft.key,
        "text": drafted.draft.text,
        "sessions": [one.session for one in drafted.draft.meetings],
        "cured_in": [cure.session for cure in drafted.draft.cures],
        "pattern": drafted.pattern.model_dump(mode="json", exclude_defaults=True),
    }


def show_draft(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """One draft, as the file that it would become."""
    drafted = _choose(read_setting(target), name)
    screen.data(to_json(ShownDraft(**_fields(drafted))) if as_json else drafted.text)
    screen.say(f"keep it: loop patterns drafts accept {name}; or not: loop patterns drafts dismiss {name}")
    return ExitCode.OK


def accept_draft(name: str, target: Path | None, screen: Screen, *, as_json: bool = False) -> int:
    """Write a draft into the project's own patterns. Raises LoopError where it is there, or the project is not."""
    setting = read_setting(target)
    drafted = _choose(setting, name)
    if setting.project.bundled:
        raise UsageError(
            "the bundled target has no patterns of its own: what ships with loop is not written to",
            hint=f"{SHOW_WHOLE} {name} > {name}.yaml, and put it into a project with --target",
        )
    path = setting.project.target / "patterns" / f"{name}.yaml"
    _write_new(path, drafted.text, setting)
    screen.data(to_json(DraftAccepted(path=str(path))) if as_json else str(path))
    screen.say(f"read and edit it, then allow what it runs: loop trust {setting.project.target}")
    return ExitCode.OK


def dismiss_draft(name: str, target: Path | None, screen: Screen, *, as_json: bool = False) -> int:
    """Do not offer a draft again."""
    setting = read_setting(target)
    drafted = _choose(setting, name)
    rule.dismiss(setting.project.sessions, drafted.draft.key)
    if as_json:
        screen.data(to_json(DraftDismissed(dismissed=name)))
    screen.say(f"{name} is not offered again; its sessions stay as they are")
    return ExitCode.OK


def _write_new(path: Path, text: str, setting: Setting) -> None:
    """Write a pattern that passes every check, and only where no file is. Raises LoopError otherwise."""
    if path.exists() or path.is_symlink():
        raise UsageError(
            f"{path}: there is such a file already, and it is not overwritten", hint="move it away first"
        )
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise WorkFailed(f"{path.parent}: cannot be made: {error.strerror}") from error
    draft = path.parent / f".{secrets.token_hex(8)}" / path.name
    try:
        draft.parent.mkdir()
        write_atomic(draft, text)
        _check(draft, setting)
        os.link(draft, path)
    except FileExistsError as error:
        raise WorkFailed(f"{path}: another process has just written it") from error
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
        if draft.parent.is_dir():
            draft.parent.rmdir()


def _check(path: Path, setting: Setting) -> None:
    """What `loop patterns check` says of it, as an error."""
    read = definitions.read_file(path, Pattern)
    complaints = check_pattern(read, {**setting.patterns, read.value.name: read}, {})
    if complaints:
        raise DefinitionError(complaints)


def _choose(setting: Setting, name: str) -> Drafted:
    found = {one.pattern.name: one for one in _drafts(setting)}
    if name not in found:
        hint = definitions.hint_for(name, found) if found else "loop patterns drafts"
        raise UsageError(f"no draft {name!r}", hint=hint)
    return found[name]


def _drafts(setting: Setting) -> Iterator[Drafted]:
    """What the sessions say now; a draft whose sessions' plans cannot be read is left out."""
    root = setting.project.sessions
    settled = {r.value.failure.signature for r in setting.patterns.values() if r.value.failure}
    number = rule.free_number(read.value.number for read in setting.patterns.values())
    for draft in rule.drafts(index.rows(root, last=REMEMBERED), settled | set(rule.dismissed(root))):
        of = _pattern(root, draft)
        if of is not None:
            changes = [change_of(setting.project, cure) for cure in draft.cures]
            words = [cured(cure, change) for cure, change in zip(draft.cures, changes, strict=True)]
            diff = next((change.patch for change in changes if change and change.patch), "")
            yield Drafted(draft, rule.pattern_of(draft, of, words, diff, number))


def _pattern(root: Path, draft: Draft) -> Pattern | None:
    """The pattern that failed, as the last session had it."""
    failure = draft.last.failure
    try:
        plan = SessionFolder(root / draft.last.session).head().plan
    except LoopError:
        return None
    return next((p.pattern for p in plan.patterns if p.pattern.name == failure.pattern), None)
