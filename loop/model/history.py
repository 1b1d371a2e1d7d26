"""Sessions recorded elsewhere, before `loop` existed: raw rows as their reports state them."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from loop.model.base import Model

Usd = Annotated[float, Field(ge=0, le=1_000_000)]
Resource = Literal["gpu", "ai", "engineer"]
RESOURCES: tuple[Resource, ...] = ("gpu", "ai", "engineer")


class HistorySession(Model):
    """One recorded session. Fields that only some reports state are optional."""

    id: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")]
    """Name in the reports: letters, digits and `+ . _ -`."""
    minutes: Annotated[float, Field(ge=0, le=60 * 24 * 366)]
    """Duration, a year at most."""
    gpu_usd: Usd | None = None
    ai_usd: Usd | None = None
    engineer_usd: Usd | None = None
    outcome: str
    speedup: float | None = None
    """Ratio against PyTorch as it was reported."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """How its environment was made to work, and in how many minutes."""
    build: str | None = None
    patterns_found: int | None = None
    applied: tuple[str, ...] = ()
    target_minutes: float | None = None
    grade: str | None = None
    correct: bool | None = None
    max_diff: float | None = None
    mean_diff: float | None = None
    note: str | None = None

    def usd_of(self, resource: Resource) -> float | None:
        """Its cost for one resource; None where not stated."""
        usd: float | None = getattr(self, f"{resource}_usd")
        return usd


class History(Model):
    """A recorded history."""

    format: Literal[1]
    source: str
    when: str | None = None
    """When the sessions took place, as far as it is known; nothing finer is made up."""
    gpu: dict[str, Any] = Field(default_factory=dict)
    sessions: Annotated[tuple[HistorySession, ...], Field(min_length=1)]
    mentioned: tuple[str, ...] = ()
    """Sessions that the reports name without figures."""
    debugging_build_minutes: dict[str, float] = Field(default_factory=dict)
    """Minutes lost to the build, by session."""
    decisions: list[dict[str, Any]] = Field(default_factory=list)
    steps: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """Target and actual seconds of the steps, by session."""
    measurements: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ids_differ(self) -> "History":
        names = [row.id.lower() for row in self.sessions]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"expected ids that differ, letters apart from case, got {name!r} twice")
        return self


class RecordedSession(Model):
    """One session of a recorded history, as it is kept in a session folder: its raw rows."""

    format: Literal[1] = 1
    id: str
    source: str
    when: str | None
    gpu: dict[str, Any]
    position: Annotated[int, Field(ge=1)]
    """Its place in the history, from 1. There is no clock: order is all that is known."""
    row: HistorySession
    steps: list[dict[str, Any]]
    measurements: list[dict[str, Any]]
