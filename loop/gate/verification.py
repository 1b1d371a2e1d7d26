"""What a verification came to, whether it ran on the device or under the emulator: the output of its step."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from loop.base.errors import WorkFailed
from loop.builds.build import BuildFailed
from loop.gate.model import ShareOutput
from loop.gate.verify import MOST_HUNG, in_order
from loop.model.measurement import Check, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.verdict import Against, NoSpeedVerdict
from loop.model.workloads import unsupported
from loop.workers.bench import UNJUDGED_HINT, Side

VERBS = {"refused": "refuses a call", "crashed": "crashes", "hung": "hangs"}
"""What is said of a variant by the first check that failed; the others make it incorrect."""
Kind = TypeVar("Kind", bound=VerifyOutput)


@dataclass(frozen=True)
class Verification:
    """The checks of all variants and of the control."""

    found: tuple[VariantChecks, ...]
    control: VariantChecks
    failures: tuple[BuildFailed, ...]
    """Variants that do not compile."""
    meant: tuple[str, ...]
    """Names of the variants that were to be verified."""
    seed: int
    command: Callable[..., str]
    """Makes a command of loop on this target."""
    missing: tuple[str, ...] = ()
    """What was not exercised, besides what hung and what variants do not take."""
    untaken: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Variant to the workloads that it does not take, and why."""

    def output(self, kind: type[Kind]) -> Kind:
        """The output of the step."""
        trusted = bool(self.control.checks) and not self.control.first_failure
        right = tuple(checks.variant for checks in self.found if checks.right and trusted)
        return kind(
            ok=len(right) == len(self.meant) and trusted,
            message=self.message,
            hint=self.hint,
            verdicts=tuple(verdict for checks in self.found if trusted for verdict in incorrect(checks)),
            not_exercised=(*self.unjudged, *self.left_out, *self.declined),
            variants=self.found,
            control=self.control,
            seed=self.seed,
            right=right,
            wrong=tuple(checks.variant for checks in self.found if checks.first_failure),
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """What was not tried at all, and why."""
        return (*self.missing, *(f"{name} on {text}" for name, texts in self.untaken.items() for text in texts))

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Workloads on which nothing could be judged, and why."""
        checks = (check for side in (*self.found, self.control) for check in side.checks)
        first = {check.workload.name: check.message for check in checks if check.status == "not judged"}
        return tuple(f"not judged: {message}" for message in first.values())

    @property
    def declined(self) -> Iterator[str]:
        """Layouts that a variant declined."""
        for checks in self.found:
            declined = {check.inputs: None for check in checks.checks if check.status == "unsupported"}
            layouts = [layout for layout in declined if layout != "contiguous"]
            if layouts:
                yield f"{checks.variant} on {', '.join(layouts)} inputs: not supported"

    @property
    def message(self) -> str:
        """One line, the most telling thing first."""
        wrong = [(checks, first) for checks in self.found if (first := checks.first_failure)]
        if self.control.first_failure:
            also = f"; {wrong[0][0].variant} as well: {wrong[0][1].message}" if wrong else ""
            doubt = "baseline, reference or tolerance is not to be trusted there"
            if self.control.first_failure.status in VERBS:
                doubt = "the baseline computes nothing, so that nothing can be held against it"
            return f"the control failed: {doubt}: {self.control.first_failure.message}{also}"
        if wrong:
            (checks, first), others = wrong[0], [other.variant for other, _ in wrong[1:]]
            counted = f" ({checks.tally})" if len(checks.checks) > 1 else ""
            too = f"; so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else ""
            return f"{checks.variant} {VERBS.get(first.status, 'is incorrect')}: {first.message}{counted}{too}"
        if self.failures:
            return f"no build: {self.failures[0].message}"
        idle = [checks.variant for checks in self.found if not checks.count("right")]
        if idle:
            why = next(
                iter([*self.untaken.get(idle[0], ()), *self.unjudged, *self.left_out]), "there is no workload"
            )
            return f"nothing was checked of {idle[0]}: {why}"
        parts = [
            f"{checks.variant} right in {len(checks.checks)} checks"
            if checks.count("right") == len(checks.checks)
            else f"{checks.variant} {checks.tally}"
            for checks in self.found
        ]
        return ", ".join(parts) or "no variant to verify"

    @property
    def hint(self) -> str | None:
        """What to do next; None when nothing is wrong."""
        if self.control.first_failure and self.control.first_failure.status in VERBS:
            return "`loop doctor` looks at torch and the device; `baseline` of target.yaml names what is called"
        if self.control.first_failure:
            return "look at `reference`, `plain`, `baseline` and `tolerance` of target.yaml before any variant"
        wrong = next((checks for checks in self.found if checks.first_failure), None)
        if wrong is not None:
            return f"mend {wrong.variant}, then `{self.command('kernels', 'verify', wrong.variant)}`"
        if self.failures:
            return self.failures[0].hint
        if all(checks.count("right") for checks in self.found):
            return None
        types = f"`{self.command('kernels', 'list')}` shows the types of each"
        return f"{types}: say dtype=... in --workloads, or name another set"


def merged(
    shares: Sequence[ShareOutput], workloads: Sequence[Workload]
) -> tuple[tuple[VariantChecks, ...], VariantChecks]:
    """The checks of each variant and of the control, in the order in which one job would give them.

    Raises WorkFailed where no share could judge anything.
    """
    every: dict[str, VariantChecks] = {}
    for parts in zip(*(share.sides for share in shares), strict=True):
        side = in_order(parts, workloads)
        if (before := every.get(side.variant)) is not None:  # The same variant on another number of threads.
            side = before.model_copy(update={"checks": (*before.checks, *side.checks)})
        every[side.variant] = side
    checks = [check for side in every.values() for check in side.checks]
    if len(shares) > 1 and checks and all(check.status == "not judged" for check in checks):
        raise WorkFailed(checks[0].message, hint=UNJUDGED_HINT)
    return tuple(every.values()), in_order([share.control for share in shares], workloads)


def hung_out(checks: VariantChecks) -> Iterator[str]:
    """A line on a variant whose checks ended because too many calls hung."""
    hung = checks.count("hung")
    if hung >= MOST_HUNG:
        yield f"{checks.variant} on the workloads after its call number {hung} that hung"


def untaken(side: Side, workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Workloads that a side does not take and why: their type, or its `takes` condition."""
    every = tuple(workloads)
    types = {workload.name: workload.dtype for workload in every if workload.dtype not in side.dtypes}
    beyond = {workload.name: unsupported(side, workload) for workload in every if workload.name not in types}
    sizes = {name: why for name, why in beyond.items() if why}
    texts = []
    if types:
        what = f"{_many(types)} of type {', '.join(dict.fromkeys(types.values()))}"
        texts.append(f"{what}: it takes {', '.join(side.dtypes)}")
    if sizes:
        what = ", ".join(dict.fromkeys(sizes.values()))
        texts.append(f"{_many(sizes)}: not supported, {what} (`takes: {side.takes}`)")
    return tuple(texts)


def _many(left: Mapping[str, str]) -> str:
    return f"{len(left)} workloads" if len(left) > 1 else next(iter(left))


def incorrect(checks: VariantChecks, against: Against = "baseline") -> tuple[NoSpeedVerdict, ...]:
    """A verdict for every workload on which a variant was wrong, crashed, hung, refused or tampered.

    Of several failed checks the first speaks, as in the step's own message; one that was tampered with before it.
    """
    first: dict[str, Check] = {}
    for check in sorted(checks.checks, key=lambda check: check.status != "tampered"):
        if not check.passed:
            first.setdefault(check.workload.name, check)
    return tuple(
        NoSpeedVerdict(
            variant=checks.variant,
            workload=check.workload.name,
            against=against,
            verdict="invalid" if check.status == "tampered" else "incorrect",
            cause=check.cause,
            reason=check.message,
        )
        for check in first.values()
    )
