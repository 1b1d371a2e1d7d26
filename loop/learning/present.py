"""The target as it is now, and what sessions say of its correctness, in sentences."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from loop.model.index import SessionRow
from loop.report import format as say
from loop.store.judgements import StandingFailure, standing, unjudged

ALL_JUDGED = "every variant was judged on every set of workloads, on these files, and nothing is wrong"


@dataclass(frozen=True)
class Present:
    """The target as it is now."""

    ground: str
    """Hash of its files."""
    compiled: Collection[str] = ()
    """Variants that can be made faster."""
    tunable: Collection[str] = ()
    """Those of them that the target has values to search of."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of its workloads, by name."""
    declared: Mapping[str, Mapping[str, Collection[str]]] = field(default_factory=dict)
    """Variant that this machine can run or emulate, to its sets, to the names of their workloads."""
    for_gpu: bool = True
    """Whether any variant is made for a GPU."""

    def failures(self, rows: Sequence[SessionRow]) -> tuple[StandingFailure, ...]:
        """What stands against its variants, the latest first."""
        names = {name: {w for every in sets.values() for w in every} for name, sets in self.declared.items()}
        return standing(rows, self.ground, names)

    def wrong(self, rows: Sequence[SessionRow]) -> tuple[str, ...]:
        """A sentence for each variant that is wrong."""
        failures = self.failures(rows)
        variants = dict.fromkeys(failure.judgement.variant for failure in failures)
        return tuple(
            wrong([failure for failure in failures if failure.judgement.variant == name]) for name in variants
        )

    def unjudged(self, rows: Sequence[SessionRow]) -> dict[str, tuple[str, ...]]:
        """Variant to its sets that no session judged on these files."""
        return unjudged(rows, self.ground, self.declared)

    def claim(self, rows: Sequence[SessionRow]) -> tuple[str, ...]:
        """That nothing is wrong, where all was judged; else what is wrong, and what was not judged."""
        bad, missing = self.wrong(rows), self.unjudged(rows)
        if not bad and not missing:
            return (ALL_JUDGED,)
        return (*bad, *([never_judged(missing)] if missing else ()))


def wrong(failures: Sequence[StandingFailure]) -> str:
    """`fast was wrong in s1 on B1 S65 and 3 more checks (seed 7)`. `failures`: one variant's, the latest first."""
    first, row, judged = failures[0], failures[0].row, failures[0].judgement
    same = sum(failure.row.id == row.id for failure in failures) - 1
    more = f" and {say.count(same, 'more check')}" if same else ""
    where = [say.count(judged.threads, "thread")] if judged.threads else []
    where += [f"seed {judged.seed}", *(["emulated"] if judged.emulated else [])]
    passed = (
        f"the same sources passed in {first.flaky}: it is flaky, not right"
        if first.flaky
        else "no other sources have passed that since"
    )
    return f"{judged.variant} was wrong in {row.id} on {first.check}{more} ({', '.join(where)}); {passed}"


def never_judged(missing: Mapping[str, Sequence[str]]) -> str:
    """`not judged on these files: fast on quick and edges; slow on edges (2 of 12 workloads)`."""
    texts = (f"{name} on {say.listed(sets)}" for name, sets in missing.items())
    return f"not judged on these files: {'; '.join(texts)}"
