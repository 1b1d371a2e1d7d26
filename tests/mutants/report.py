"""RESULTS.md: how many mutants of each operator were found, by what, and why the others were not."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.mutants.explanations import VERDICTS, Reason
from tests.mutants.mutants import Mutant
from tests.mutants.study import Outcome
from tests.mutants.truth import SETS

APART = ("warp barrier dropped",)
"""Operators that the totals leave out."""
UNEXPLAINED = Reason("unexplained", "not examined yet")
HEAD = "| Operator | Places | Tried | No code | Killed | Equivalent | Slower | Survived |"
RULE = "|:--|--:|--:|--:|--:|--:|--:|--:|"

Pairs = Sequence[tuple[Mutant, Outcome]]


class Tally:
    """Counts over mutants."""

    def __init__(self, pairs: Pairs, reasons: Mapping[str, Reason]) -> None:
        verdicts = Counter(verdict(outcome, reasons) for _, outcome in pairs)
        self.tried, self.invalid, self.killed = len(pairs), verdicts["does not compile"], verdicts["killed"]
        self.equivalent, self.slower = verdicts["equivalent"], verdicts["slower"]
        self.survived = verdicts["hole"] + verdicts["unexplained"]

    @property
    def counts(self) -> tuple[int, ...]:
        """In the order of the table."""
        return self.tried, self.invalid, self.killed, self.equivalent, self.slower, self.survived

    @property
    def share(self) -> str:
        """Killed, of those that change what a caller can see."""
        behaving = self.killed + self.survived
        return f"{self.killed} of {behaving} ({self.killed / max(behaving, 1):.1%})"


def verdict(outcome: Outcome, reasons: Mapping[str, Reason]) -> str:
    """One word for what became of a mutant."""
    if outcome.killed:
        return "killed"
    return outcome.how if outcome.how != "survived" else reasons.get(outcome.key, UNEXPLAINED).verdict


def report(pairs: Pairs, places: Mapping[str, int], reasons: Mapping[str, Reason]) -> list[str]:
    """The tables."""
    whole = Tally([pair for pair in pairs if pair[0].operator not in APART], reasons)
    apart = Tally([pair for pair in pairs if pair[0].operator in APART], reasons)
    return [
        f"**{whole.share}** of the mutants that change what a caller can see are killed. Apart from them: "
        f"a dropped `__syncwarp`, {apart.share}.",
        "",
        "`Places`: where the operator applies. `Tried`: those that the thinning rule keeps. `No code`: "
        "the compiler rejects it, mostly by a static assertion; not counted.",
        *(f"`{word.capitalize()}`: {meaning}." for word, meaning in VERDICTS.items() if word != "hole"),
        "",
        HEAD,
        RULE,
        *_operators(pairs, places, reasons),
        f"| **all but those apart** | | {' | '.join(map(str, whole.counts))} |",
        "",
        "## What killed them",
        "",
        *_kinds(pairs),
        "",
        "## What the manifest's own workloads let through",
        "",
        *_let_through(pairs),
        "",
        "## Those that survived",
        "",
        *_survivors(pairs, reasons),
    ]


def _operators(pairs: Pairs, places: Mapping[str, int], reasons: Mapping[str, Reason]) -> Iterator[str]:
    groups: defaultdict[str, list[tuple[Mutant, Outcome]]] = defaultdict(list)
    for mutant, outcome in pairs:
        groups[mutant.operator].append((mutant, outcome))
    for name in places:
        apart = " (apart)" if name in APART else ""
        yield f"| {name}{apart} | {places[name]} | {' | '.join(map(str, Tally(groups[name], reasons).counts))} |"


def _kinds(pairs: Pairs) -> Iterator[str]:
    kinds = Counter(outcome.how for _, outcome in pairs if outcome.killed)
    yield "| Found by | Mutants |"
    yield "|:--|--:|"
    for kind, count in kinds.most_common():
        yield f"| {kind} | {count} |"


def _let_through(pairs: Pairs) -> Iterator[str]:
    killed = [pair for pair in pairs if pair[1].killed and pair[1].manifest is not None]
    if not killed:
        yield "They were not run."
        return
    missed = [(mutant, outcome) for mutant, outcome in killed if not outcome.manifest]
    yield f"The sets `{'`, `'.join(SETS)}` of target.yaml, as a session checks variants on them: they find"
    yield f"{len(killed) - len(missed)} of the {len(killed)} mutants that are killed here. These they do not:"
    yield ""
    for mutant, outcome in missed:
        yield f"- {mutant.key} ({outcome.how} with {outcome.workload})"


def _survivors(pairs: Pairs, reasons: Mapping[str, Reason]) -> Iterator[str]:
    groups: defaultdict[Reason, list[Mutant]] = defaultdict(list)
    for mutant, outcome in pairs:
        if outcome.how == "survived":
            groups[reasons.get(mutant.key, UNEXPLAINED)].append(mutant)
    for reason in sorted(groups, key=lambda one: (one.verdict not in ("hole", "unexplained"), one.verdict)):
        yield f"**{reason.verdict.capitalize()}**: {reason.because}"
        yield ""
        yield from (f"- line {mutant.line}, {mutant.key}" for mutant in groups[reason])
        yield ""
