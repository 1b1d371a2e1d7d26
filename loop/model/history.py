"""Sessions recorded elsewhere, before `loop` existed: raw rows as their reports state them."""

from typing import Any, Literal

from pydantic import Field

from loop.model.base import Model


class HistoryEnvironment(Model):
    """How a recorded session got its environment to work."""

    how: str
    """By hand, or by which pattern."""
    minutes: float | None
    """Minutes; None where the report does not say."""


class HistorySession(Model):
    """One recorded session. Fields that only some reports state are optional."""

    id: str
    """Name in the reports."""
    minutes: float
    """Duration."""
    gpu_usd: float | None = None
    """GPU cost."""
    ai_usd: float | None = None
    """AI cost."""
    engineer_usd: float | None = None
    """Engineer cost."""
    outcome: str
    """What came of it."""
    speedup: float | None = None
    """Ratio against PyTorch as it was reported."""
    environment: HistoryEnvironment | None = None
    """How the environment was made to work."""
    build: str | None = None
    """How the build went."""
    patterns_found: int | None = None
    """Patterns it contributed."""
    target_minutes: float | None = None
    """Planned duration."""
    grade: str | None = None
    """Grade in the report."""
    correct: bool | None = None
    """Whether the output was right."""
    max_diff: float | None = None
    """Largest difference from PyTorch."""
    mean_diff: float | None = None
    """Mean difference from PyTorch."""
    note: str | None = None
    """Remark."""


class History(Model):
    """A recorded history."""

    format: Literal[1]
    """Format number of this file."""
    source: str
    """Where the rows come from."""
    gpu: dict[str, Any]
    """The GPU they were measured on."""
    rates_stated: dict[str, float]
    """Prices as the reports state them."""
    sessions: tuple[HistorySession, ...]
    """The sessions, in order."""
    debugging_build_minutes: dict[str, float | None]
    """Minutes lost to the build, by session."""
    time_to_baseline_minutes: dict[str, float | None]
    """Minutes until a baseline existed, by session."""
    memory: dict[str, Any] = Field(default_factory=dict)
    """A remark on memory."""
    steps: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """Target and actual seconds of the steps, by session."""
    measurements: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """Latencies and errors, by session."""
    decisions: list[dict[str, Any]] = Field(default_factory=list)
    """Decisions as they were taken."""

    def minutes_without(self, what: str) -> dict[str, float]:
        """Minutes that `what` took without its pattern, by session.

        `what` is `environment_minutes` (sessions whose environment was not made by a pattern),
        `debugging_build_minutes` or `time_to_baseline_minutes`.
        """
        if what == "environment_minutes":
            rows = {s.id: s.environment.minutes for s in self.sessions if s.environment and by_hand(s.environment)}
        else:
            rows = getattr(self, what)
        return {session: minutes for session, minutes in rows.items() if minutes is not None}


def by_hand(environment: HistoryEnvironment) -> bool:
    """Whether an environment was made to work without a pattern."""
    return not environment.how.startswith("pattern")
