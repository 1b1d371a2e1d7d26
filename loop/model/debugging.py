"""Results of debugging: wrong component, cause, rule, smallest failing workload, and earlier tries."""

from typing import Literal

from loop.model.base import Model
from loop.model.measurement import Check, VariantChecks
from loop.model.output import Output

Outcome = Literal["fails", "passes", "other"]
"""Result of a probe: `fails` with the failure under study, `passes`, or `other` (a different failure)."""


class ComponentChecks(Model):
    """Checks of one component of a variant, run alone."""

    component: str
    variant: str
    title: str
    checks: VariantChecks

    @property
    def outcome(self) -> str:
        """`is right by itself`, or status and message of its first failure."""
        first = self.checks.first_failure
        return f"is {first.status}: {first.message}" if first else "is right by itself"


class Smallest(Model):
    """The smallest workload found on which a variant fails."""

    variant: str
    check: Check
    began: str
    words: str
    """The workload for a command line: `B=1 S=65 D=64`; empty if it failed only at times, or after others."""
    seed: int
    probes: int
    minimal: bool
    """True if no dimension can be reduced by one; False if the time budget ended the search."""
    note: str = ""
    """A special finding, such as a failure that does not occur every time."""


class EarlierTry(Model):
    """A build of a variant that an earlier session verified."""

    session: str
    variant: str
    build_id: str | None
    ground: str
    hypothesis: str
    right: bool
    message: str
    smallest: str = ""


class Explanation(Model):
    """Why and where one variant is wrong, as far as debugging found out."""

    variant: str
    cause: str
    """The defect: a data race, state kept between calls, a known fault; empty if unknown."""
    as_if: tuple[str, ...]
    """Known faults that each explain the wrong outputs."""
    rule: str
    """Condition for wrong workloads; empty if no rule predicted new workloads correctly."""
    held: int
    """Number of new workloads in a row that the rule predicted correctly."""
    where: str
    """Which elements are wrong, in words; empty if there is no output."""
    workload: str

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """(label, text) pairs: cause, rule, where. Pairs without a text are left out."""
        rule, cause = "", self.cause
        if self.rule:
            rule = f"{self.rule} ({self.held} of {self.held} fresh workloads as foreseen)"
        elif self.where and not cause:
            cause = "not identified: no known fault and no rule fits"
        pairs = ("Cause", cause), ("Rule", rule), ("Where", self.where)
        return tuple((label, text) for label, text in pairs if text)

    @property
    def text(self) -> str:
        return "; ".join(f"{label.lower()}: {text}" for label, text in self.lines)


class DebugOutput(Output):
    """Result of a debugging step on wrong variants."""

    actions = ("debug.components", "debug.smallest", "debug.explain")

    components: tuple[ComponentChecks, ...] = ()
    wrong: tuple[str, ...] = ()
    smallest: tuple[Smallest, ...] = ()
    explanations: tuple[Explanation, ...] = ()


class TurnOutput(Output):
    """Earlier tries, and the variants that the current edit changes."""

    actions = ("debug.hypotheses", "debug.scope")

    hypothesis: str = ""
    tries: tuple[EarlierTry, ...] = ()
    repeated: tuple[str, ...] = ()
    """Variants whose current build was already found wrong."""
    changed: tuple[str, ...] = ()
    """Compiled variants whose build differs from the known-good build."""
    count: int = 0
    simple: str = ""
    """The first changed variant in the manifest, taken as the simplest; empty for fewer than two."""
    simple_right: bool = True
