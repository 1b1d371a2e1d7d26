"""What a verification came to, whether it ran on the device or under the emulator: the output of its step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from loop.bench.build import BuildFailed
from loop.bench.room import Side
from loop.bench.verify import MOST_HUNG
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.rules import compare

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
    """What was not exercised, besides what hung."""

    def output(self, kind: type[Kind]) -> Kind:
        """The output of the step."""
        trusted = self.control.right
        right = tuple(checks.variant for checks in self.found if checks.right and trusted)
        return kind(
            ok=len(right) == len(self.meant) and trusted,
            message=self.message,
            hint=self.hint,
            verdicts=tuple(verdict for checks in self.found if trusted for verdict in compare.incorrect(checks)),
            not_exercised=(*self.missing, *self.given_up),
            variants=self.found,
            control=self.control,
            seed=self.seed,
            right=right,
            wrong=tuple(checks.variant for checks in self.found if checks.first_failure),
        )

    @property
    def given_up(self) -> tuple[str, ...]:
        """Variants whose checks ended early, because so many had hung."""
        hung = {one.variant: sum(check.status == "hung" for check in one.checks) for one in self.found}
        return tuple(
            f"{name} on the workloads after its call number {count} that hung"
            for name, count in hung.items()
            if count >= MOST_HUNG
        )

    @property
    def message(self) -> str:
        """One line, the most telling thing first."""
        wrong = [(checks.variant, checks.first_failure) for checks in self.found if checks.first_failure]
        if self.control.first_failure:
            also = f"; {wrong[0][0]} as well: {wrong[0][1].message}" if wrong else ""
            doubt = "baseline, reference or tolerance is not to be trusted there"
            if self.control.first_failure.status == "refused":
                doubt = "the baseline computes nothing, so that nothing can be held against it"
            return f"the control failed: {doubt}: {self.control.first_failure.message}{also}"
        if wrong:
            name, first = wrong[0]
            others = f"; so {'is' if len(wrong) == 2 else 'are'} {', '.join(one for one, _ in wrong[1:])}"
            word = "refuses a call:" if first.status == "refused" else "is incorrect:"
            return f"{name} {word} {first.message}{others if len(wrong) > 1 else ''}"
        if self.failures:
            return f"no build: {self.failures[0].message}"
        idle = [checks.variant for checks in self.found if not checks.checks]
        if idle:
            return f"nothing was checked of {idle[0]}: {self._why_idle(idle[0])}"
        return ", ".join(map(_right, self.found)) or "no variant to verify"

    def _why_idle(self, name: str) -> str:
        """Why a variant has no check: what was left out for it alone, else for all."""
        mine = [text.removeprefix(f"{name} on ") for text in self.missing if text.startswith(f"{name} on ")]
        return next(iter([*mine, *self.missing]), "there is no workload")

    @property
    def hint(self) -> str | None:
        """What to do next; None when nothing is wrong."""
        if self.control.first_failure and self.control.first_failure.status == "refused":
            return "`loop doctor` looks at torch and the device; `baseline` of target.yaml names what is called"
        if self.control.first_failure:
            return "look at `reference`, `plain`, `baseline` and `tolerance` of target.yaml before any variant"
        wrong = next((checks for checks in self.found if checks.first_failure), None)
        if wrong is None:
            return self.failures[0].hint if self.failures else self._other_workloads
        return f"mend {wrong.variant}, then `{self.command('kernels', 'verify', wrong.variant)}`"

    @property
    def _other_workloads(self) -> str | None:
        """What to do where a variant had nothing to compute."""
        if all(checks.checks for checks in self.found):
            return None
        types = f"`{self.command('kernels', 'list')}` shows the types of each"
        return f"{types}: say dtype=... in --workloads, or name another set"


def _right(checks: VariantChecks) -> str:
    """`cpu right in 74 checks`."""
    return f"{checks.variant} right in {len(checks.checks)} checks"


def untaken(side: Side, workloads: Iterable[Workload]) -> str:
    """That a side has no check on workloads whose type it does not take; empty when it takes all."""
    left = {one.name: one.dtype for one in workloads if one.dtype not in side.dtypes}
    if not left:
        return ""
    many = f"{len(left)} workloads" if len(left) > 1 else next(iter(left))
    types = ", ".join(dict.fromkeys(left.values()))
    return f"{side.name} on {many} of type {types}: it takes {', '.join(side.dtypes)}"
