"""What a verification came to, whether it ran on the device or under the emulator: the output of its step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from loop.bench.build import BuildFailed
from loop.bench.verify import MOST_HUNG
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput
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

    def output(self, kind: type[Kind], missing: Sequence[str]) -> Kind:
        """The output of the step; `missing` is what it did not exercise, besides what hung."""
        trusted = self.control.right
        right = tuple(checks.variant for checks in self.found if checks.right and trusted)
        return kind(
            ok=len(right) == len(self.meant) and trusted,
            message=self.message,
            hint=self.hint,
            verdicts=tuple(verdict for checks in self.found if trusted for verdict in compare.incorrect(checks)),
            not_exercised=(*missing, *self.given_up),
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
            return (
                "the control failed: baseline, reference or tolerance is not to be trusted there: "
                f"{self.control.first_failure.message}{also}"
            )
        if wrong:
            name, first = wrong[0]
            others = f"; so {'is' if len(wrong) == 2 else 'are'} {', '.join(one for one, _ in wrong[1:])}"
            word = "refuses a call:" if first.status == "refused" else "is incorrect:"
            return f"{name} {word} {first.message}{others if len(wrong) > 1 else ''}"
        if self.failures:
            return f"no build: {self.failures[0].message}"
        return ", ".join(map(_right, self.found)) or "no variant to verify"

    @property
    def hint(self) -> str | None:
        """What to do next; None when nothing is wrong."""
        if not self.control.right:
            return "look at `reference`, `plain`, `baseline` and `tolerance` of target.yaml before any variant"
        wrong = next((checks for checks in self.found if not checks.right), None)
        if wrong is None:
            return None
        return f"mend {wrong.variant}, then `loop kernels verify {wrong.variant}`"


def _right(checks: VariantChecks) -> str:
    """`cpu right in 74 checks`."""
    if not checks.checks:
        return f"{checks.variant} takes none of these workloads' types"
    return f"{checks.variant} right in {len(checks.checks)} checks"
