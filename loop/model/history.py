"""Sessions recorded elsewhere, before `loop` existed: raw rows as their reports state them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from loop.model.base import Model

Minutes = Annotated[float, Field(ge=0, le=60 * 24 * 366)]
"""Of one session: a year at most."""
Usd = Annotated[float, Field(ge=0, le=1_000_000)]
RecordedId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")]
"""Name of a recorded session: letters, digits and `+ . _ -`."""
Resource = Literal["gpu", "ai", "engineer"]
RESOURCES: tuple[Resource, ...] = ("gpu", "ai", "engineer")


class HistoryEnvironment(Model):
    """How a recorded session got its environment to work."""

    how: str
    """By hand, or by which pattern."""
    minutes: Minutes | None
    """Minutes; None where the report does not say."""


class HistorySession(Model):
    """One recorded session. Fields that only some reports state are optional."""

    id: RecordedId
    """Name in the reports."""
    minutes: Minutes
    """Duration."""
    gpu_usd: Usd | None = None
    ai_usd: Usd | None = None
    engineer_usd: Usd | None = None
    outcome: str
    speedup: float | None = None
    """Ratio against PyTorch as it was reported."""
    environment: HistoryEnvironment | None = None
    build: str | None = None
    patterns_found: int | None = None
    applied: tuple[str, ...] = ()
    target_minutes: float | None = None
    """Planned duration."""
    grade: str | None = None
    correct: bool | None = None
    max_diff: float | None = None
    mean_diff: float | None = None
    note: str | None = None

    def usd_of(self, resource: Resource) -> float | None:
        """Its cost for one resource; None where not stated."""
        usd: float | None = getattr(self, f"{resource}_usd")
        return usd


class HistorySource(Model):
    """What the reports of a history say of all its sessions."""

    format: Literal[1] = 1
    source: str
    when: str | None = None
    """When the sessions took place, as far as it is known; nothing finer is made up."""
    gpu: dict[str, Any] = Field(default_factory=dict)
    """The GPU that they were measured on."""


class History(HistorySource):
    """A recorded history."""

    format: Literal[1]
    sessions: Annotated[tuple[HistorySession, ...], Field(min_length=1)]
    mentioned: tuple[str, ...] = ()
    """Sessions that the reports name without figures."""
    debugging_build_minutes: dict[str, Minutes] = Field(default_factory=dict)
    """Minutes lost to the build, by session."""
    decisions: list[dict[str, Any]] = Field(default_factory=list)
    steps: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """Target and actual seconds of the steps, by session."""
    measurements: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)


def by_hand(environment: HistoryEnvironment) -> bool:
    """Whether an environment was made to work without a pattern."""
    return not environment.how.startswith("pattern")


class RecordedSession(HistorySource):
    """One session of a recorded history, as it is kept in a session folder: its raw rows."""

    id: str
    """Name of the folder."""
    history: str
    """Hash of the history's source: sessions of one history belong together."""
    position: Annotated[int, Field(ge=1)]
    """Its place in the history, from 1. There is no clock: order is all that is known."""
    row: HistorySession
    patterns: dict[str, Minutes] = Field(default_factory=dict)
    """Minutes of the patterns that its report names by number, by their name."""
    steps: list[dict[str, Any]] = Field(default_factory=list)
    measurements: list[dict[str, Any]] = Field(default_factory=list)
