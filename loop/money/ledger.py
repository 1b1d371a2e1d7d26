"""The ledger: what sessions cost and saved. Sums over rows of the index, nothing else.

What nobody measured is None, never 0.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loop.base.errors import UsageError
from loop.model.index import SessionRow
from loop.model.money import RateCard
from loop.money.charging import Used, charge

RESOURCES = ("gpu", "ai", "engineer", "energy")
WORDS = {"gpu": "GPU", "ai": "AI", "engineer": "engineer"}
NEVER_CLOSED = "sessions that never closed are charged for the steps that their journals hold"


class Saved(NamedTuple):
    """What sessions spared, as measured in them."""

    minutes: float
    usd: float


@dataclass(frozen=True)
class Totals:
    """What sessions took and cost."""

    sessions: int
    minutes: float
    energy_j: float | None
    """Joules that GPUs took while they were measured; None where no sensor told."""
    charged: dict[str, float]
    """Resource to dollars."""
    unknown: frozenset[str]
    """Resources that some session has no figure for."""

    @property
    def usd(self) -> float | None:
        """All that is known; None where that is nothing at all: no charge, and something that has no figure."""
        return None if not self.charged and self.unknown - {"energy"} else sum(self.charged.values())

    def of(self, resource: str) -> float | None:
        """Dollars for one resource. None where none is known; 0 where none was used, which is known."""
        return self.charged.get(resource, None if resource in self.unknown else 0.0)


def totals(sessions: Sequence[SessionRow]) -> Totals:
    """Sums over sessions."""
    charged: dict[str, float] = {}
    for one in (one for session in sessions for one in session.charges):
        charged[one.resource] = charged.get(one.resource, 0.0) + one.usd
    joules = [session.energy_j for session in sessions if session.energy_j is not None]
    return Totals(
        sessions=len(sessions),
        minutes=sum(session.seconds / 60 for session in sessions),
        energy_j=sum(joules) if joules else None,
        charged=charged,
        unknown=frozenset(one.resource for session in sessions for one in session.unmeasured),
    )


def savings(sessions: Iterable[SessionRow]) -> Saved:
    """What was spared in sessions, summed up."""
    every = [saving for session in sessions for saving in session.savings]
    return Saved(sum(one.minutes for one in every), sum(one.usd for one in every))


def roi(sessions: Sequence[SessionRow]) -> float | None:
    """(spared - charged) / charged in sessions run here; None where nothing was charged or nothing spared."""
    cost = sum(session.usd for session in sessions if not session.recorded)
    saved = savings(sessions)
    return (saved.usd - cost) / cost if cost > 0 and saved.minutes else None


def with_open(sessions: Sequence[SessionRow], card: RateCard) -> list[SessionRow]:
    """The sessions, those that never closed charged at the card for the steps that their journals hold."""
    return [_charged(one, card) if one.status is None and not one.recorded else one for one in sessions]


def _charged(session: SessionRow, card: RateCard) -> SessionRow:
    seconds = sum(run.seconds for run in session.runs)
    used = Used(seconds=seconds, device=session.device, gpu=session.environment.gpu, hosts=session.hosts)
    charged = charge(used, card.attended(session.attended))
    bill = {"charges": charged.charges, "unmeasured": charged.unmeasured, "notes": (NEVER_CLOSED,)}
    return session.model_copy(update={"seconds": seconds, "usd": sum(one.usd for one in charged.charges), **bill})


def choose(sessions: Sequence[SessionRow], words: str | None, option: str = "--sessions") -> list[SessionRow]:
    """The sessions from A to B: `A..B`, `A..`, `..B` or one, by id, by the beginning of one, `last` or `last~1`.

    Raises LoopError, with the name of the option, for one that is not there or a range that runs backwards.
    """
    if not words:
        return list(sessions)
    first, dots, last = words.partition("..")
    start = _place(sessions, first, option) if first else 0
    end = _place(sessions, last, option) if last else len(sessions) - 1 if dots else start
    if end < start:
        hint = f"{option} {last}..{first}"
        raise UsageError(f"{option} {words}: {last} comes before {first}", hint=hint)
    return list(sessions[start : end + 1])


def _place(sessions: Sequence[SessionRow], name: str, option: str) -> int:
    exact = [place for place, session in enumerate(sessions) if session.id == name]
    if exact:
        return exact[0]
    back = re.fullmatch(r"last(?:~(\d{1,6}))?", name)
    if back and int(back[1] or 0) < len(sessions):
        return len(sessions) - 1 - int(back[1] or 0)
    called = [place for place, session in enumerate(sessions) if _called(session, name)]
    if len(called) == 1:
        return called[0]
    what = f"{len(called)} sessions begin so" if called else "no such session"
    raise UsageError(f"{option} {name}: {what}", hint="`loop sessions list` names them")


def _called(session: SessionRow, name: str) -> bool:
    """Whether a session's id begins so; one recorded elsewhere ends with what its report calls it."""
    return session.id.startswith(name) or (session.recorded and session.id.endswith(f"-{name.lower()}"))


def notes(sessions: Sequence[SessionRow]) -> list[str]:
    """What has no figure, in how many sessions; what was stated; what the bills themselves say."""
    told = [_without_figure(sessions, resource) for resource in ("gpu", "ai", "engineer")]
    stated = sum(any(one.basis == "stated" for one in session.charges) for session in sessions)
    if stated:
        told.append(f"stated by somebody, not measured: charges of {stated} of {len(sessions)} sessions")
    sums = totals(sessions)
    if sums.energy_j is not None and not sums.of("energy"):
        told.append(f"energy: {sums.energy_j:,.0f} J while GPUs were timed, without a price")
    times = Counter(note for session in sessions for note in session.notes)
    told += [note if count == 1 else f"{note} ({count} sessions)" for note, count in times.items()]
    return list(filter(None, told))


def _without_figure(sessions: Sequence[SessionRow], resource: str) -> str:
    """Empty where every session has a figure; the reason where all without one share it."""
    unmeasured = [one for session in sessions for one in session.unmeasured if one.resource == resource]
    if not unmeasured:
        return ""
    why = f" ({unmeasured[0].reason})" if len({one.reason for one in unmeasured}) == 1 else ""
    return f"{WORDS[resource]}: not measured in {len(unmeasured)} of {len(sessions)} sessions{why}"
