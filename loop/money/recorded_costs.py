"""Sums over recorded sessions, and differences between them: what their rows imply."""

from dataclasses import dataclass

from loop.model.history import History


@dataclass(frozen=True)
class Totals:
    """Sums over recorded sessions; a row that states no figure adds nothing, and is named."""

    sessions: int
    minutes: float
    gpu_usd: float
    ai_usd: float
    engineer_usd: float
    not_stated: tuple[str, ...]
    """Sessions without a figure for the GPU or the AI."""

    @property
    def usd(self) -> float:
        """All that is stated."""
        return self.gpu_usd + self.ai_usd + self.engineer_usd


def totals_through(history: History, session: str) -> Totals:
    """What the recorded sessions had cost when `session` ended. Raises ValueError for an unknown one."""
    ids = [row.id for row in history.sessions]
    rows = history.sessions[: ids.index(session) + 1]
    return Totals(
        sessions=len(rows),
        minutes=sum(row.minutes for row in rows),
        gpu_usd=sum(row.gpu_usd or 0.0 for row in rows),
        ai_usd=sum(row.ai_usd or 0.0 for row in rows),
        engineer_usd=sum(row.engineer_usd or 0.0 for row in rows),
        not_stated=tuple(row.id for row in rows if row.gpu_usd is None or row.ai_usd is None),
    )


def environment_minutes_saved(history: History, session: str, earlier: str) -> float | None:
    """Minutes by which one recorded session got its environment sooner than an earlier; None where not stated."""
    minutes = {row.id: row.environment.minutes for row in history.sessions if row.environment}
    ours, theirs = minutes.get(session), minutes.get(earlier)
    return None if ours is None or theirs is None else theirs - ours


def saved_against(history: History, session: str, earlier: str) -> tuple[float, float]:
    """Minutes and dollars (GPU and AI) by which one recorded session came cheaper than an earlier one."""
    rows = {row.id: row for row in history.sessions}
    ours, theirs = (rows[name] for name in (session, earlier))
    costs = [(row.gpu_usd or 0.0) + (row.ai_usd or 0.0) for row in (theirs, ours)]
    return theirs.minutes - ours.minutes, costs[0] - costs[1]
