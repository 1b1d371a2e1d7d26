"""Results: costs of sessions, keep-or-stop and pivot decisions."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from loop.model.base import Model, Printed
from loop.model.money import Rate
from loop.model.output import Output
from loop.model.plan import Text
from loop.report import format as say
from loop.report.screen import Screen

Waiting = Literal["nobody", "agent", "engineer"]
Dollars = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]
MOST_SHOWN = 30
"""Most sessions in the printed table of costs; totals cover all sessions."""
Hours = Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]


class Costs(Model):
    """Duration and cost of sessions, in dollars. None: not measured; 0: nothing was used."""

    name: str
    """Id of the session; `sum` for all sessions."""
    sessions: int
    minutes: float
    gpu_usd: float | None
    ai_usd: float | None
    engineer_usd: float | None
    """Dollars for attending people, as stated."""
    usd: float | None
    partial: tuple[str, ...] = ()
    """Resources that some sessions have no figure for, so their dollars are only a part."""

    @property
    def cells(self) -> tuple[str, ...]:
        """A table row: name, minutes, dollars by resource. `?`: unknown; `+`: only a part."""
        cells = [self.name, f"{self.minutes:.1f}"]
        usd_by_resource = {"gpu": self.gpu_usd, "ai": self.ai_usd, "engineer": self.engineer_usd, "": self.usd}
        for resource, usd in usd_by_resource.items():
            is_part = resource in self.partial if resource else bool(self.partial)
            if usd is None:
                cells.append("?")
                continue
            decimals = 2 if usd == 0 or abs(usd) >= 1 else 4
            cells.append(f"{usd:.{decimals}f}{'+' if is_part else ''}")
        return tuple(cells)


class Ledger(Printed):
    """Costs of sessions, and measured savings."""

    schema_version: int = 6
    totals: Costs
    rows: tuple[Costs, ...]
    spared_minutes: float
    """Measured minutes that sessions saved."""
    spared_usd: float
    roi: float | None
    """(Saved - cost) / cost, in dollars; None if nothing was charged or saved."""
    notes: tuple[str, ...]
    """Limits of these figures, a sentence each."""
    damaged: dict[str, str]
    """Session folders that were skipped, each with the reason."""

    def show(self, screen: Screen) -> None:
        """Print the last sessions, savings, notes and damaged folders."""
        if not self.rows:
            screen.say("no sessions yet; `loop run session` makes one")
            return
        last_rows = self.rows[-MOST_SHOWN:]
        if len(last_rows) < len(self.rows):
            screen.data(f"the last {len(last_rows)} of {len(self.rows)} sessions; --json has all")
        cells = [costs.cells for costs in (*last_rows, self.totals)]
        screen.table(("session", "min", "GPU", "AI", "engineer", "all"), cells, wrap=0)
        screen.data("")
        if self.spared_minutes:
            roi = "" if self.roi is None else f"; ROI {self.roi:.3g}"
            amount = f"{self.spared_minutes:.1f} min, {say.usd(self.spared_usd)}"
            screen.prose(f"spared, as measured here: {amount}{roi}")
        for note in self.notes:
            screen.prose(f"note: {note}")
        for folder, reason in self.damaged.items():
            screen.prose(f"damaged: {folder}: {reason}")


class AgedRate(Rate):
    """A price with its age."""

    age_days: int
    old: bool
    """Whether the price is too old to rely on."""
    charged_at: bool


class Prices(Printed):
    """The prices of the rate card."""

    schema_version: int = 2
    rates: tuple[AgedRate, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row per price, then the sources by number."""
        sources = list(dict.fromkeys(rate.source for rate in self.rates))
        rows = []
        for rate in self.rates:
            name = f"{rate.name} *" if rate.charged_at else rate.name
            age_text = f"{rate.age_days} d, old" if rate.old else f"{rate.age_days} d"
            source_number = str(sources.index(rate.source) + 1)
            rows.append((name, f"{rate.usd_per_hour:.5g}", str(rate.as_of), age_text, source_number))
        screen.table(("rate (* sessions are charged at it)", "$/h", "as of", "age", "source"), rows, wrap=0)
        screen.data("")
        for number, source in enumerate(sources, start=1):
            screen.data(f"{number:2d}  {source}")


class StopCost(Model):
    """Cost of stopping the GPU and restarting it later."""

    usd: float
    source: str
    waiting: Waiting | None = None
    """Who waits for the restart; None if the cost was given as a whole."""
    waiting_usd_per_hour: float = 0.0

    def compare_with_idling(self, gpu_usd_per_hour: float) -> tuple[str, ...]:
        """Lines: cost of idling, cost of a stop, and the idle time at which both are equal."""
        waiting = ", while nobody waits" if self.waiting else ""
        if self.waiting in ("agent", "engineer"):
            waiting = f", while an {self.waiting} waits at {say.rate(self.waiting_usd_per_hour)} an hour"
        return (
            f"Idling: {say.rate(gpu_usd_per_hour)} an hour",
            f"A stop: {say.usd(self.usd)}; {self.source}{waiting}",
            f"Break-even: {say.hours(self.usd / gpu_usd_per_hour)} of idling",
        )


class KeepOrStop(Printed):
    """Cost of keeping an idle GPU against stopping it, and the decision."""

    schema_version: int = 4
    idle_hours: float
    """Expected hours until the GPU is needed again."""
    gpu_usd_per_hour: float
    idle_usd: float
    stop_usd: float
    break_even_hours: float
    """Idle hours at which keeping costs as much as stopping."""
    decision: Literal["keep", "stop"]
    """The cheaper choice; `keep` if both cost the same."""
    stop: StopCost

    @property
    def sentence(self) -> str:
        """The decision with both costs and the break-even."""
        costs = f"idle ${self.idle_usd:.2f} against ${self.stop_usd:.2f} for a stop"
        return f"{self.decision.capitalize()} it: {costs} (break-even {say.hours(self.break_even_hours)})."

    def show(self, screen: Screen) -> None:
        """Print the decision, then both costs."""
        for line in (self.sentence, *self.stop.compare_with_idling(self.gpu_usd_per_hour)):
            screen.prose(line)


class KeepOutput(Output):
    """Whether to keep the GPU after the work is done."""

    actions = ("session.keep_or_stop",)

    gpu_usd_per_hour: float = 0.0
    stop: StopCost | None = None
    """Cost of a stop; None if no restart time is known."""
    expected: KeepOrStop | None = None
    """The decision for the given idle time; None if none was given."""


class MachineOption(Model):
    """One option for how to continue."""

    name: Text
    usd: tuple[Dollars, Dollars]
    """Lowest and highest cost in dollars."""
    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Probability of success, 0 to 1; leave it out if unknown."""
    value_usd: Dollars | None = None

    @model_validator(mode="after")
    def check_order(self) -> "MachineOption":
        """Refuse a range of dollars whose first end is the higher one."""
        if self.usd[0] > self.usd[1]:
            raise ValueError("expected a range from least to most")
        return self


class Options(Model):
    """The file of options for `pivot`, with a person's estimates."""

    format: Literal[1]
    question: Text
    value_usd: Dollars | None = None
    """Value of success in dollars, for options that state none."""
    options: Annotated[tuple[MachineOption, ...], Field(min_length=1, max_length=50)]


class OptionValue(Model):
    """An option with its expected value."""

    name: str
    usd: tuple[float, float]
    """Lowest and highest cost in dollars."""
    expected_usd: tuple[float, float] | None
    """Probability times value minus cost, worst and best; None if either is unknown."""
    note: str
    """The conclusion in words."""

    @property
    def line(self) -> str:
        """Name, cost, expected value and conclusion, on one line."""
        costs = " to ".join(dict.fromkeys(map(say.usd, self.usd)))
        if self.expected_usd is not None:
            costs += f", expected {' to '.join(dict.fromkeys(map(say.usd, self.expected_usd)))}"
        return f"{self.name}: costs {costs}; {self.note}"


class StopRule(Model):
    """A reason to stop that was agreed in advance."""

    rule: str
    holds: bool | None
    """Whether the rule is met; None if the records do not tell."""
    why: str

    @property
    def line(self) -> str:
        """Rule, result and evidence, on one line."""
        met = {True: "met", False: "not met", None: "unknown whether it is met"}[self.holds]
        return f"{self.rule}: {met}; {self.why}"


class Pivot(Printed):
    """Whether to continue, and with which option."""

    schema_version: int = 3
    question: str | None = None
    """The decision to make; None without a file of options."""
    stop: bool
    rules: tuple[StopRule, ...]
    options: tuple[OptionValue, ...] = ()
    best: str | None = None
    """Option whose worst case beats every rival's best case and zero; None if there is none."""
    decision: str

    @property
    def lines(self) -> tuple[str, ...]:
        """The conclusion, then a line for each stop rule and each option."""
        parts: tuple[StopRule | OptionValue, ...] = (*self.rules, *self.options)
        return (self.decision, *(part.line for part in parts))

    def show(self, screen: Screen) -> None:
        """Print the conclusion, the stop rules and the options."""
        for line in self.lines:
            screen.prose(line)


class PivotOutput(Output):
    """Whether to continue, decided by a step of a session."""

    actions = ("session.pivot",)

    pivot: Pivot | None = None
