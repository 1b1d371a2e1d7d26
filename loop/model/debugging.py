"""What debugging finds: the part that is wrong, cause and rule, the smallest workload, and what was tried."""

from typing import Literal

from loop.model.base import Model
from loop.model.measurement import Check, VariantChecks
from loop.model.output import Output

Outcome = Literal["fails", "passes", "other"]
"""What the gate says of a probe: the failure that is looked for, none, or another one that says nothing of it."""


class ComponentChecks(Model):
    """A component of a variant by itself."""

    component: str
    variant: str
    title: str
    checks: VariantChecks

    @property
    def outcome(self) -> str:
        """`is right by itself`, or in which way it is not."""
        first = self.checks.first_failure
        return f"is {first.status}: {first.message}" if first else "is right by itself"


class Smallest(Model):
    """The smallest workload found on which a variant fails."""

    variant: str
    check: Check
    began: str
    words: str
    """The workload as a command line gives it: `B=1 S=65 D=64`."""
    seed: int
    probes: int
    minimal: bool
    """Whether no dimension can be made one smaller; false where the budget ended the search."""
    note: str = ""
    """What is odd about it, such as a failure that does not come every time."""


class EarlierTry(Model):
    """One build of one variant that went through the gate in an earlier session."""

    session: str
    variant: str
    build_id: str | None
    ground: str
    hypothesis: str
    right: bool
    message: str
    smallest: str = ""


class Explanation(Model):
    """Why and where one variant is wrong, as far as that was found."""

    variant: str
    cause: str
    """What is wrong: a data race, values that are kept between calls, a known fault; or empty."""
    as_if: tuple[str, ...]
    """Known faults each of which explains its outputs."""
    rule: str
    """On which workloads it is wrong; empty where no rule foresaw fresh ones."""
    held: int
    """Fresh workloads in a row that the rule foresaw."""
    where: str
    """Which elements are wrong, in words; empty where there is no output."""
    workload: str

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and text, the most telling first."""
        rule, cause = "", self.cause
        if self.rule:
            rule = f"{self.rule} ({self.held} of {self.held} fresh workloads as foreseen)"
        elif self.where and not cause:
            cause = "not identified: no known fault and no rule fits"
        texts = ("Cause", cause), ("Rule", rule), ("Where", self.where)
        return tuple(pair for pair in texts if pair[1])

    @property
    def text(self) -> str:
        """In one line."""
        return "; ".join(f"{label.lower()}: {text}" for label, text in self.lines)


class DebugOutput(Output):
    """What a step of defensive debugging found of the variants that are wrong."""

    actions = ("debug.components", "debug.smallest", "debug.explain")

    components: tuple[ComponentChecks, ...] = ()
    wrong: tuple[str, ...] = ()
    smallest: tuple[Smallest, ...] = ()
    explanations: tuple[Explanation, ...] = ()


class TurnOutput(Output):
    """What was tried before this turn, and how many variants it changes."""

    actions = ("debug.hypotheses", "debug.scope")

    hypothesis: str = ""
    tries: tuple[EarlierTry, ...] = ()
    repeated: tuple[str, ...] = ()
    """Variants whose very build was found wrong before."""
    changed: tuple[str, ...] = ()
    """Compiled variants whose build is not the known good's."""
    count: int = 0
    simple: str = ""
    """The simplest of them: the first in the manifest; empty where one at most was changed."""
    simple_right: bool = True
