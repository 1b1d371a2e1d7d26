"""What commands about money print with `--json`."""

from typing import Any, Literal

from loop.model.base import Model, Printed
from loop.model.money import EnergyRate, Rate
from loop.money.model import KeepOrStop, Pivot, StopCost


class Cost(Model):
    """What sessions took and cost; None: not known, 0: nothing used."""

    sessions: int
    """How many."""
    minutes: float
    """Wall time."""
    gpu_usd: float | None
    """For the GPU."""
    ai_usd: float | None
    """For AI."""
    engineer_usd: float | None
    """For people who attended, as stated."""
    energy_usd: float | None
    """For electricity."""
    energy_j: float | None
    """Joules that GPUs took."""
    usd: float | None
    """All that is known."""


class SessionCost(Cost):
    """One session."""

    name: str
    """Its id."""


class Spared(Model):
    """What sessions measurably spared."""

    minutes: float
    """Minutes."""
    usd: float
    """Dollars."""
    roi: float | None
    """Dollars spared for each that was spent."""


class Less(Model):
    """What sessions took less than others, on average; None: not known."""

    minutes: float | None
    """Minutes."""
    gpu_usd: float | None
    """For the GPU."""
    ai_usd: float | None
    """For AI."""
    engineer_usd: float | None
    """For people."""
    energy_usd: float | None
    """For electricity."""
    usd: float | None
    """In all."""
    minutes_percent: float | None
    """Minutes, in percent."""
    usd_percent: float | None
    """Dollars, in percent."""


class SessionLess(Less):
    """One session."""

    name: str
    """Its id."""


class LessThan(Less):
    """All of them, and against which."""

    sessions: str
    """The earlier ones."""
    environment_minutes: float | None
    """What their environment took less, where recorded sessions say."""
    rows: tuple[SessionLess, ...]
    """Each by itself."""


class DamagedFolder(Model):
    """A folder that is left out."""

    folder: str
    """Its name."""
    reason: str
    """Why."""


class Costs(Printed):
    """What sessions cost, and what was measurably spared."""

    schema_version: Literal[4] = 4
    """Number of this schema."""
    totals: Cost
    """All of them."""
    rows: tuple[SessionCost, ...]
    """Each of them."""
    spared: Spared
    """What was spared."""
    saved_against: LessThan | None
    """What they took less than `--against`."""
    notes: tuple[str, ...]
    """What the figures rest on."""
    contradictions: tuple[str, ...]
    """Figures that cannot all be right."""
    damaged: tuple[DamagedFolder, ...]
    """Folders that are left out."""


class ChargedAt(Model):
    """The rates that sessions are charged at, by name."""

    gpu: str | None
    """For the GPU."""
    waiting: str | None
    """For whoever waits."""
    ai: str | None
    """For AI."""
    energy: EnergyRate | None
    """For electricity."""


class AgedRate(Rate):
    """A price with its age."""

    age_days: int
    """Days since it was true."""
    old: bool
    """Whether that is long ago."""
    charged_at: bool
    """Whether sessions are charged at it."""


class Prices(Printed):
    """The prices of the rate card."""

    charged_at: ChargedAt
    """Those that count."""
    rates: tuple[AgedRate, ...]
    """All of them."""


class KeptOrStopped(Printed, KeepOrStop):
    """Whether to keep an idle GPU."""

    schema_version: Literal[2] = 2
    """Number of this schema."""
    stop: StopCost
    """What a stop costs."""


class RecordedStop(KeepOrStop):
    """A decision of the recorded history."""

    session: str
    """The session."""
    decided: str
    """What was decided."""


class RecordedStops(Printed):
    """The decisions of the recorded history to keep a GPU."""

    schema_version: Literal[2] = 2
    """Number of this schema."""
    decisions: tuple[RecordedStop, ...]
    """Each of them."""


class Pivoted(Printed, Pivot):
    """Whether to go on."""

    question: str | None
    """What has to be decided."""


class RecordedPivot(Pivot):
    """A decision of the recorded history."""

    session: str
    """The session."""
    question: str
    """What had to be decided."""
    stated: tuple[dict[str, Any], ...]
    """The options as they were stated."""


class RecordedPivots(Printed):
    """The decisions of the recorded history to go on or not."""

    decisions: tuple[RecordedPivot, ...]
    """Each of them."""


StopAnswer = KeptOrStopped | RecordedStops
PivotAnswer = Pivoted | RecordedPivots
