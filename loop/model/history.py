"""Sessions recorded before `loop` existed: raw rows from their reports."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from loop.model.base import Model

Usd = Annotated[float, Field(ge=0, le=1_000_000)]


class HistorySession(Model):
    """One recorded session. It may have further fields, as its report states them."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")]
    """Name in the reports: letters, digits and `+ . _ -`."""
    minutes: Annotated[float, Field(ge=0, le=60 * 24 * 366)]
    """Duration, a year at most."""
    gpu_usd: Usd | None = None
    ai_usd: Usd | None = None
    engineer_usd: Usd | None = None
    outcome: str
    grade: str | None = None
    correct: bool | None = None


class History(Model):
    """A file of sessions from before `loop` existed; like a session, it may have more fields."""

    model_config = ConfigDict(extra="allow")

    format: Literal[1]
    source: str
    when: str | None = None
    """Date or period of the sessions, only as exact as it is known."""
    gpu: dict[str, Any] = Field(default_factory=dict)
    sessions: Annotated[tuple[HistorySession, ...], Field(min_length=1)]
    steps: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """Session id to its steps, with target and actual seconds."""
    measurements: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _refuse_equal_ids(self) -> "History":
        """Raise ValueError for ids that differ only by case: on some disks they are one folder."""
        names = [row.id.lower() for row in self.sessions]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"expected ids that differ by more than case, got {name!r} twice")
        return self


class RecordedSession(Model):
    """One session of a recorded history, as its session folder stores it."""

    format: Literal[1] = 1
    id: str
    source: str
    when: str | None
    gpu: dict[str, Any]
    position: Annotated[int, Field(ge=1)]
    """Position in the history, from 1. Times are unknown; only the order is known."""
    row: HistorySession
    steps: list[dict[str, Any]]
    measurements: list[dict[str, Any]]
