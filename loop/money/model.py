"""What sessions cost; decisions: keep or stop a GPU, go on or pivot; and what is known of a preemption."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from loop.model.base import Model, Printed
from loop.model.money import Rate
from loop.model.output import Output
from loop.model.plan import Text
from loop.report import format as say

Waiting = Literal["nobody", "agent", "engineer"]
Dollars = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]
Hours = Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]


def hours_text(hours: float) -> str:
    """`12 min`, `4.0 h`."""
    return f"{60 * hours:.0f} min" if hours < 1 else f"{hours:.1f} h"


class Costs(Model):
    """What sessions took and cost, in dollars. None: nobody measured it; 0: nothing was used."""

    name: str
    """The session's id; `sum` for all of them."""
    sessions: int
    """How many."""
    minutes: float
    """Wall time."""
    gpu_usd: float | None
    """For GPUs."""
    ai_usd: float | None
    """For AI."""
    engineer_usd: float | None
    """For people who attended, as stated."""
    usd: float | None
    """All that is known."""
    partial: tuple[str, ...] = ()
    """Resources that some session has no figure for: their dollars are a part."""

    @property
    def cells(self) -> tuple[str, ...]:
        """A row of a table: minutes, and dollars by resource; `+` where some of them were not measured.

        What is not known is a question mark, never a zero.
        """
        cells = [self.name, f"{self.minutes:.1f}"]
        dollars = {"gpu": self.gpu_usd, "ai": self.ai_usd, "engineer": self.engineer_usd, "": self.usd}
        for resource, usd in dollars.items():
            is_part = resource in self.partial if resource else bool(self.partial)
            text = "?" if usd is None else f"{usd:.2f}" if usd == 0 or abs(usd) >= 1 else f"{usd:.4f}"
            cells.append(f"{text}+" if is_part and usd is not None else text)
        return tuple(cells)


class Ledger(Printed):
    """What sessions cost, and what was measurably spared."""

    schema_version: int = 6
    """Number of this schema."""
    totals: Costs
    """All of them."""
    rows: tuple[Costs, ...]
    """Each of them."""
    spared_minutes: float
    """Minutes that sessions measurably spared."""
    spared_usd: float
    """The same in dollars."""
    roi: float | None
    """Dollars spared for each that was spent; None where nothing was charged or nothing spared."""
    notes: tuple[str, ...]
    """What the figures rest on."""
    damaged: dict[str, str]
    """Folders that are left out, each with the reason."""


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

    schema_version: int = 2
    """Number of this schema."""
    rates: tuple[AgedRate, ...]
    """All of them."""


class StopCost(Model):
    """What stopping the GPU costs."""

    usd: float
    """Dollars."""
    source: str
    """What that rests on, in words."""
    waiting: Waiting | None = None
    """Who waits for the restart; None where the cost was given as a whole."""
    waiting_usd_per_hour: float = 0.0
    """What an hour of theirs costs."""

    def sides(self, gpu_usd_per_hour: float) -> tuple[str, ...]:
        """What idling and a stop cost, and after how long they cost the same, a line each."""
        waiting = ", while nobody waits" if self.waiting else ""
        if self.waiting in ("agent", "engineer"):
            waiting = f", while an {self.waiting} waits at {say.rate(self.waiting_usd_per_hour)} an hour"
        return (
            f"Idling: {say.rate(gpu_usd_per_hour)} an hour",
            f"A stop: {say.usd(self.usd)}; {self.source}{waiting}",
            f"Break-even: {hours_text(self.usd / gpu_usd_per_hour)} of idling",
        )


class KeepOrStop(Printed):
    """Both sides of keeping an idle GPU, and what follows."""

    schema_version: int = 4
    """Number of this schema."""
    idle_hours: float
    """Hours until the GPU is needed again, as expected."""
    gpu_usd_per_hour: float
    """What an hour of the GPU costs."""
    idle_usd: float
    """The cost of keeping it: hours times rate."""
    stop_usd: float
    """The cost of stopping it."""
    break_even_hours: float
    """Idle hours that cost as much as that."""
    decision: Literal["keep", "stop"]
    """The cheaper of both; to keep where both cost the same."""
    stop: StopCost | None = None
    """What a stop costs."""

    @property
    def sentence(self) -> str:
        """Both sides, the break-even and the decision."""
        both = f"idle ${self.idle_usd:.2f} against ${self.stop_usd:.2f} for a stop"
        return f"{self.decision.capitalize()} it: {both} (break-even {hours_text(self.break_even_hours)})."


class KeepOutput(Output):
    """Whether to keep the GPU now that the work is done."""

    actions = ("session.keep_or_stop",)

    gpu_usd_per_hour: float = 0.0
    """What an hour of the GPU costs."""
    stop: StopCost | None = None
    """What a stop costs; None where no restart is known."""
    expected: KeepOrStop | None = None
    """The decision for the idle time that was given; None where none was."""


class MachineOption(Model):
    """One way to go on."""

    name: Text
    """What would be done."""
    usd: tuple[Dollars, Dollars]
    """What it costs, from least to most."""
    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """How likely it succeeds; leave it out where nobody knows."""
    value_usd: Dollars | None = None
    """What success is worth; leave it out where nobody knows."""

    @model_validator(mode="after")
    def _in_order(self) -> "MachineOption":
        if self.usd[0] > self.usd[1]:
            raise ValueError("expected a range from least to most")
        return self


class Options(Model):
    """The ways to go on, as somebody estimates them."""

    format: Literal[1]
    """Format number of this file."""
    question: Text
    """What has to be decided."""
    value_usd: Dollars | None = None
    """What success is worth, for options that do not say."""
    options: Annotated[tuple[MachineOption, ...], Field(min_length=1, max_length=50)]
    """The options."""


class OptionValue(Model):
    """One option, weighed."""

    name: str
    """What would be done."""
    usd: tuple[float, float]
    """What it costs."""
    expected_usd: tuple[float, float] | None
    """Probability times value less cost, from worst to best; None where either is not known."""
    note: str
    """What follows, in words."""

    @property
    def line(self) -> str:
        """All of it; expected is probability times value less cost."""
        costs, worth = (dict.fromkeys(map(say.usd, ends)) for ends in (self.usd, self.expected_usd or ()))
        expected = f", expected {' to '.join(worth)}" if worth else ""
        return f"{self.name}: costs {' to '.join(costs)}{expected}; {self.note}"


class StopRule(Model):
    """A reason to stop that was agreed on before."""

    rule: str
    """What it says."""
    holds: bool | None
    """Whether it is met; None where the records do not tell."""
    why: str
    """The records that say so."""

    @property
    def line(self) -> str:
        """All of it."""
        met = {True: "met", False: "not met", None: "unknown whether it is met"}[self.holds]
        return f"{self.rule}: {met}; {self.why}"


class Pivot(Printed):
    """Whether to go on, and with what."""

    schema_version: int = 3
    """Number of this schema."""
    question: str | None = None
    """What has to be decided."""
    stop: bool
    """Whether a stop rule is met."""
    rules: tuple[StopRule, ...]
    """The stop rules, each with what the records say."""
    options: tuple[OptionValue, ...] = ()
    """The options, weighed."""
    best: str | None = None
    """The option whose worst case is above every other known one's best; None where the ranges overlap."""
    decision: str
    """What follows, in a sentence."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What follows, then each stop rule and each option."""
        return (self.decision, *(rule.line for rule in self.rules), *(option.line for option in self.options))


class PivotOutput(Output):
    """Whether to go on, seen from inside a session."""

    actions = ("session.pivot",)

    pivot: Pivot | None = None
    """Stop rules and options."""


class PreemptionOutput(Output):
    """Whether the machine may be taken away, and is about to be."""

    actions = ("session.preemption",)

    cloud: str | None = None
    """The cloud it is in; None where no metadata server answers."""
    notice: str = ""
    """What is about to happen to it."""
