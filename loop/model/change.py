"""One change to a target: what it was to mend, how the gate judged it, and what became of it."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.outcome import Output
from loop.model.output import (
    BuildOutput,
    CompareOutput,
    MeasureOutput,
    ProfileOutput,
    PropertiesOutput,
    VerifyOutput,
)
from loop.model.profile import Profile
from loop.model.sanitizing import SanitizeOutput
from loop.model.tuning import Values

Outcome = Literal["kept", "reverted"]


class Tried(Model):
    """A change of this session that was judged."""

    number: Annotated[int, Field(ge=1)]
    """Which one of the session, from 1."""
    variant: str
    """The variant it was for."""
    outcome: Outcome
    """What became of it."""
    reason: str
    """Why, in one line."""
    gain: float | None = None
    """Mean ratio of the incumbent's time to its own; None where it was not timed."""
    files: tuple[str, ...] = ()
    """Files it touched."""
    patch: str = ""
    """Where its patch is kept."""


class LostIdea(Model):
    """A change that an earlier session judged and took back, in the same environment."""

    session: str
    """The session."""
    variant: str
    """The variant it was for."""
    reason: str
    """Why it was taken back, in one line."""
    gain: float | None = None
    """Mean ratio of the incumbent's time to its own; None where it was not timed."""
    files: tuple[str, ...] = ()
    """Files it touched."""
    patch: str = ""
    """Where its patch is kept."""
    digest: str = ""
    """Hash of the patch: the very same change is not judged again."""


class Brief(Model):
    """What a person or an agent is asked to do: one change, and how it will be judged."""

    number: Annotated[int, Field(ge=1)]
    """Which change of the session it is, from 1."""
    variant: str
    """The variant that is to become faster."""
    title: str
    """Its idea, as it is now."""
    workload: str
    """Where it does worst."""
    profile: Profile | None
    """Why, as far as it is known; None where nothing was profiled."""
    folder: str
    """The target's folder in the worktree: the only place to edit."""
    files: tuple[str, ...]
    """Files that may change, from that folder; new ones beside them may be added."""
    shared: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Files that may not, for variants are built from them that this session does not judge: these."""
    rule: str
    """When a change is kept."""
    timed: tuple[str, ...]
    """Workloads that decide."""
    checks: tuple[str, ...] = ()
    """Sets of workloads on which it has to be right besides."""
    tried: tuple[Tried, ...] = ()
    """Changes that were judged before, so that none is made twice."""
    lost: tuple[LostIdea, ...] = ()
    """Changes to it that earlier sessions took back, in the same environment."""
    resume: str
    """The command that has the edit judged."""
    decline: str
    """The command that ends it without another change."""
    tuning: str | None = None
    """What was tuned, where the change is that of a search: it is timed on that tuning's own workloads."""


class BriefOutput(Output):
    """A change was asked for, and made or declined."""

    brief: Brief | None = None
    """What was asked; None where there is nothing that could be changed."""
    edited: bool = False
    """Whether there is an edit to be judged."""
    declined: bool = False
    """Whether the user wants no further change."""
    files: tuple[str, ...] = ()
    """Files that were edited, from the target's folder."""
    lines: int = 0
    """Lines added and removed."""
    base: str = ""
    """Commit of the worktree that the edit stands on."""
    patch: str = ""
    """Where the edit's patch is kept."""
    digest: str = ""
    """Hash of the patch: what is judged has to be what was handed back."""


class JudgedOutput(Output):
    """What one step of the gate says of a change. A bad change is not a bad session: the step itself passes."""

    good: bool = False
    """Whether the change passes this step."""


class ChangeBuildOutput(JudgedOutput):
    """Whether the edit compiles, and which variants it changes."""

    touched: tuple[str, ...] = ()
    """Variants whose build it changes."""
    found: BuildOutput | None = None
    """The builds."""


class ChangeVerifyOutput(JudgedOutput):
    """Whether what the edit changes is still right."""

    found: VerifyOutput | None = None
    """The checks."""


class ChangePropertiesOutput(JudgedOutput):
    """Whether the relations between outputs still hold."""

    found: PropertiesOutput | None = None
    """The checks."""


class ChangeSanitizeOutput(JudgedOutput):
    """What the GPU's sanitizer says of it; good, too, where it could not be asked, as `not_exercised` tells."""

    found: SanitizeOutput | None = None
    """Its findings."""


class ChangeMeasureOutput(JudgedOutput):
    """Its speed against the baseline."""

    found: MeasureOutput | None = None
    """The measurements."""


class ChangeCompareOutput(JudgedOutput):
    """Its speed against the incumbent's, under the sequential rule."""

    found: CompareOutput | None = None
    """The comparisons."""


class ChangeProfileOutput(JudgedOutput):
    """What holds it back now."""

    found: ProfileOutput | None = None
    """The profiles."""


class DecisionOutput(Output):
    """What became of the change."""

    kept: bool = False
    """Whether it stands."""
    tried: Tried | None = None
    """The change as it is remembered."""
    branch: str = ""
    """Branch on which the kept changes of this session stand; empty outside git, or where none was kept."""
    incumbents: dict[str, str] = Field(default_factory=dict)
    """Variant to the build that the next change is held against."""


class Trial(Model):
    """One point of a search, and what became of it."""

    tuning: str
    """Name of what is tuned."""
    values: Values
    """Field to value."""
    outcome: Literal["incumbent", "refused", "wrong", "timed", "best", "lost"]
    """What runs now; not compiled; not right; timed; the fastest of those; lost before, and not tried again."""
    reason: str = ""
    """Why it was not timed."""
    ratio: float | None = None
    """Geometric mean over the workloads of the incumbent's time to its own; None where it was not timed."""
    worst: float | None = None
    """The lowest of these ratios."""


class TuneOutput(BriefOutput):
    """A search over values of a kernel: every point that was tried, and the edit that the best one makes."""

    trials: tuple[Trial, ...] = ()
    """All of them: those that lost too."""
    ground: str = ""
    """Hash of sources, recipe, toolchain and workloads: on the same ground a point that lost loses again."""


class PastSearch(Model):
    """A search of an earlier session."""

    session: str
    """The session."""
    ground: str
    """What it stood on."""
    trials: tuple[Trial, ...]
    """Its points."""
    taken_back: str = ""
    """Why the gate took its best point back; empty where it did not."""
