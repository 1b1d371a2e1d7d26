"""A failure that comes back becomes the draft of a pattern: what fails, how one looks, what cured it."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from loop.base.documents import sums
from loop.base.documents.files import unusable
from loop.base.locks import locked
from loop.base.places import state_folder
from loop.learning.failures import cure_of
from loop.learning.model import Cure
from loop.model.base import Model
from loop.model.index import FailureSeen, SessionRow
from loop.model.pattern import Estimate, Evidence, Failure, Pattern, Step

TIMES = 3
"""Sessions that have to meet a failure before a pattern is drafted for it."""
FIRST_NUMBER = 100
"""Patterns of a project's own are numbered from here."""
LONGEST_SLUG = 40
SHORTEST_MINUTES = 0.01
DISMISSED = "dismissed-drafts.json"


@dataclass(frozen=True)
class Meeting:
    """One session that met a failure."""

    session: str
    failure: FailureSeen
    cure: Cure | None


@dataclass(frozen=True)
class Draft:
    """A failure that was met often enough, before a person has looked at it."""

    key: str
    text: str
    meetings: tuple[Meeting, ...]
    """One a session, the oldest first."""

    @property
    def name(self) -> str:
        """Name of the pattern: words of the signature, and the beginning of its hash."""
        slug = "-".join(re.findall(r"[a-z0-9]+", self.text.lower()))[:LONGEST_SLUG].strip("-")
        return f"{slug if slug[:1].isalpha() else f'failure-{slug}'.strip('-')}-{self.key[:6]}"

    @property
    def last(self) -> Meeting:
        """The last session that met it."""
        return self.meetings[-1]

    @property
    def cures(self) -> tuple[Cure, ...]:
        """What got past it, the last first, each session once."""
        found = {one.cure.session: one.cure for one in reversed(self.meetings) if one.cure}
        return tuple(found.values())


def drafts(rows: Sequence[SessionRow], settled: Collection[str] = (), times: int = TIMES) -> tuple[Draft, ...]:
    """Failures that at least `times` sessions met, but for those whose key is `settled`: accepted or dismissed."""
    met: dict[str, dict[str, tuple[int, FailureSeen]]] = {}
    for index, row in enumerate(rows):
        for one in row.failures if not row.recorded else ():
            if one.key and one.key not in settled:
                met.setdefault(one.key, {}).setdefault(row.id, (index, one))
    often = {key: found for key, found in met.items() if len(found) >= times}
    return tuple(_draft(rows, key, found.values()) for key, found in often.items())


def _draft(rows: Sequence[SessionRow], key: str, met: Iterable[tuple[int, FailureSeen]]) -> Draft:
    meetings = tuple(Meeting(rows[index].id, one, cure_of(rows, index, one)) for index, one in met)
    return Draft(key, meetings[-1].failure.signature, meetings)


def pattern_of(draft: Draft, of: Pattern, cured: Sequence[str], diff: str, number: int) -> Pattern:
    """The draft as a pattern: the steps of the pattern that failed, up to the one that did, with what cured it.

    `of`: that pattern as the last session had it. `cured`: what each of the draft's cures was, in words.
    """
    failed = draft.last.failure
    steps = tuple(_steps(of.steps, failed, cured))
    return Pattern(
        format=1,
        name=draft.name,
        number=number,
        title=f"Answer to: {draft.text}"[:100],
        problem=f"Step {failed.step} of {of.name} fails: {draft.text}. {len(draft.meetings)} sessions met it.",
        use_when=(draft.text, f"{of.name}/{failed.step} fails"),
        estimate=Estimate(minutes=max(SHORTEST_MINUTES, round(sum(s.budget_s for s in steps) / 60, 2))),
        steps=steps,
        evidence=tuple(_evidence(draft, cured)),
        failure=Failure(signature=draft.key, text=draft.text, cured_by=tuple(cured), diff=diff),
    )


def _steps(steps: Sequence[Step], failed: FailureSeen, cured: Sequence[str]) -> Iterator[Step]:
    """Those up to the failed one, whose gates may read what the earlier ones found.

    What mends it is the last cure; without one what the step itself said to do.
    """
    for step in steps:
        if step.id == failed.step:
            mend = f"last time: {cured[0]}" if cured else failed.hint or step.mend
            yield step.model_copy(update={"mend": mend})
            return
        yield step


def _evidence(draft: Draft, cured: Sequence[str]) -> Iterator[Evidence]:
    notes = [(one.session, f"{one.failure.pattern}/{one.failure.step} failed so") for one in draft.meetings]
    notes += [(cure.session, words) for cure, words in zip(draft.cures, cured, strict=True)]
    for session, note in sorted(notes):
        yield Evidence(session=session, note=note)


def free_number(taken: Iterable[int]) -> int:
    """The number of the next pattern of a project's own."""
    return max([FIRST_NUMBER - 1, *taken]) + 1


class Dismissed(Model):
    """The drafts that a person does not want, of all projects; with the user's state."""

    format: int = 1
    """Format number."""
    keys: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Folder of sessions to the hashes of signatures."""


def dismissed(root: Path) -> tuple[str, ...]:
    """Hashes of the signatures dismissed for a folder of sessions. Raises LoopError on a damaged file."""
    return _dismissed().keys.get(str(root.absolute()), ())


def dismiss(root: Path, key: str) -> None:
    """Do not offer a draft again. Raises LoopError where the state folder cannot be written, or is held."""
    path = state_folder() / DISMISSED
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(path.parent, "made", error) from error
    with locked(path.with_suffix(".lock")):
        known = _dismissed().keys
        keys = dict.fromkeys((*known.get(str(root.absolute()), ()), key))
        sums.write_sealed(path, Dismissed(keys={**known, str(root.absolute()): tuple(keys)}))


def _dismissed() -> Dismissed:
    path = state_folder() / DISMISSED
    try:
        return sums.read_sealed(Dismissed, path, "delete it: dismissed drafts are then offered again")
    except FileNotFoundError:
        return Dismissed()
    except OSError as error:
        raise unusable(path, "read", error) from error
