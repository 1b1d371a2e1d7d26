"""Propose the next session: fix what is wrong, then measure what is not, then optimise."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loop.base.stats import plain_ratio
from loop.model.bisect import UNCOMMITTED
from loop.model.change import KeptChange
from loop.model.index import SessionRow
from loop.model.profile import Promise
from loop.model.record import RESUMABLE
from loop.profile.bottleneck import AHEAD, time_share_won
from loop.report import format as say
from loop.store.judgements import UnresolvedFailure, unchecked_sets, unresolved_failures, wrong_builds

ALL_JUDGED = "every variant was judged on every set of workloads, on these files, and nothing is wrong"
LOST = 2
"""Rejected changes of a variant in a row, after which `optimize` is no longer proposed."""
ENOUGH = 2
"""Sessions on the same files after which an inconclusive measurement is not repeated."""
SLOW_PLANS = ("optimize", "tune", "bisect", "debug")
"""Plans that do more than verify; a failure in one is verified again with `baseline`."""


@dataclass(frozen=True)
class TargetState:
    """The current state of the target."""

    ground: str
    compiled: Collection[str] = ()
    """Variants that are compiled, so they can be optimised."""
    tunable: Collection[str] = ()
    """Compiled variants for which the target lists values to search."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each workload, by name."""
    declared: Mapping[str, Mapping[str, Collection[str]]] = field(default_factory=dict)
    """Variant that this machine can run or emulate, to its workload sets, to their workloads."""
    for_gpu: bool = True
    """Whether some variant is for a GPU."""

    def failures(self, rows: Sequence[SessionRow]) -> tuple[UnresolvedFailure, ...]:
        """Failed checks that have not passed since, latest first."""
        names = {name: {w for every in sets.values() for w in every} for name, sets in self.declared.items()}
        return unresolved_failures(rows, self.ground, names)

    def by_variant(self, rows: Sequence[SessionRow]) -> dict[str, list[UnresolvedFailure]]:
        """The standing failures, by variant."""
        grouped: dict[str, list[UnresolvedFailure]] = {}
        for failure in self.failures(rows):
            grouped.setdefault(failure.judgement.variant, []).append(failure)
        return grouped

    def wrong(self, rows: Sequence[SessionRow]) -> tuple[str, ...]:
        """A sentence for each incorrect variant."""
        return tuple(wrong_sentence(failures) for failures in self.by_variant(rows).values())

    def unjudged(self, rows: Sequence[SessionRow]) -> dict[str, tuple[str, ...]]:
        """Variant to the workload sets on which no session checked these files."""
        return unchecked_sets(rows, self.ground, self.declared)

    def claim(self, rows: Sequence[SessionRow]) -> tuple[str, ...]:
        """Sentences: what is wrong or unchecked; else that everything was checked and is right."""
        missing = self.unjudged(rows)
        return (*self.wrong(rows), *([never_judged(missing)] if missing else ())) or (ALL_JUDGED,)


def wrong_sentence(failures: Sequence[UnresolvedFailure]) -> str:
    """`fast was wrong in s1 on B1 S65 and 3 more checks (seed 7)`, for one variant's failures."""
    first, row, judged = failures[0], failures[0].row, failures[0].judgement
    same = sum(failure.row.id == row.id for failure in failures) - 1
    more = f" and {say.count(same, 'more check')}" if same else ""
    where = [say.count(judged.threads, "thread")] if judged.threads else []
    where += [f"seed {judged.seed}", *(["emulated"] if judged.emulated else [])]
    return (
        f"{judged.variant} was wrong in {row.id} on {first.check}{more} ({', '.join(where)}); {first.explanation}"
    )


def never_judged(missing: Mapping[str, Sequence[str]]) -> str:
    """`not judged on these files: fast on quick and edges; slow on edges (2 of 12 workloads)`."""
    texts = (f"{name} on {say.listed_words(sets)}" for name, sets in missing.items())
    return f"not judged on these files: {'; '.join(texts)}"


@dataclass(frozen=True)
class Idea:
    """A proposal for the next session."""

    plan: str
    objective: str
    why: tuple[str, ...]
    """Evidence in the records."""
    variant: str | None = None
    """Variant that the proposal is about; None for all."""
    resume: str | None = None
    take: KeptChange | None = None
    blamed: str = ""
    """Commit to revert or fix first; empty if none."""
    repeats: UnresolvedFailure | None = None
    """Failed check to repeat, with its seed, threads and device."""


def ideas(rows: Sequence[SessionRow], now: TargetState, lost: Mapping[str, int]) -> tuple[Idea, ...]:
    """Proposals for the next session, most urgent first; the last one always applies.

    `rows`: one target's sessions, oldest first. `lost`: rejected changes since the last kept one.
    """
    own = [row for row in rows if not row.recorded]
    ended = [row for row in own if row.status is not None]
    measured = [row for row in ended if row.ratios]
    last = ended[-1] if ended else None
    every: list[Idea] = []
    if last is not None and last.status in RESUMABLE:
        why = f"{last.id} is {last.status}: {last.reason}"
        every.append(Idea(last.plan, "Go on with the session that stopped", (why,), resume=last.id))
    if last is not None and last.ground == now.ground:
        for edit in last.kept:
            why = f"{edit.variant} is {say.gain_text(edit)}, by {last.id}"
            objective = f"Take over the kept change of {edit.variant}, then verify it"
            every.append(Idea("quick", objective, (why,), take=edit))
    every += [*_incorrect(own, now), *_regressed(ended), *_failed(ended)]
    is_measured = any(now.ground in (row.measured_hash, row.ground) for row in measured)
    if not measured:
        why = "no session has measured speed"
        every.append(Idea("baseline", "Build, verify and measure against the library", (why,)))
    elif not is_measured:
        why = f"the target's files have changed since {measured[-1].id}, the last session that measured"
        every.append(Idea("baseline", "Verify and measure what has changed", (why,)))
    if last is not None and last.missed and last.otherwise not in {"", None, *(run.pattern for run in last.runs)}:
        why = f"{last.id} missed its objective: {last.missed}"
        every.append(Idea(last.otherwise or "", "Do what the plan names as the answer to a miss", (why,)))
    every += _slow(ended, now, lost)
    # Sets that no session checked on these files, unless `baseline` tried.
    unjudged_sets = now.unjudged(own) if is_measured else {}
    missing = {name: sets for name, sets in unjudged_sets.items() if not _ran("baseline", name, own, now.ground)}
    if missing:
        variant = next(iter(missing)) if len(missing) == 1 else None
        objective = "Judge what no session has judged on these files"
        every.append(Idea("baseline", objective, (never_judged(missing),), variant))
    return (*every, _fallback_idea(own, now))


def _incorrect(rows: Sequence[SessionRow], now: TargetState) -> Iterator[Idea]:
    """Repeat each failed check until it passes on changed files.

    The proposal is to edit, to revert the blamed commit, or to bisect for it.
    """
    bad = wrong_builds(rows)
    for variant, failures in now.by_variant(rows).items():
        row, why = failures[0].row, (wrong_sentence(failures),)
        plan = "baseline" if row.plan in SLOW_PLANS else row.plan
        right = (past for past in reversed(rows) if variant in past.right and past.commit)
        good = next((past for past in right if not past.has_judged_build(variant, bad)), None)
        if row.ground != now.ground:
            objective = f"Files have changed since {variant} was wrong: run again what failed"
            yield Idea(plan, objective, why, variant, repeats=failures[0])
        elif variant in row.blamed:
            blamed = _blame(variant, row, "wrong")
            yield replace(blamed, why=(*blamed.why, *why), repeats=failures[0])
        elif good and row.commit not in (None, good.commit) and not _searched(row):
            known = f"{good.id} found it right at commit {str(good.commit)[:12]}"
            yield Idea("bisect", f"Find the commit that made {variant} wrong", (*why, known), variant)
        else:
            yield Idea(plan, f"Mend {variant}, then run again what failed", why, variant, repeats=failures[0])


def _regressed(rows: Sequence[SessionRow]) -> Iterator[Idea]:
    """Variants that were slower than their known good in their latest measurement."""
    last = {variant: row for row in rows for variant in (*row.ratios, *row.regressed)}
    for variant, row in last.items():
        if variant not in row.regressed:
            continue
        why = f"it was slower than its known good in {row.id}, and no session since has shown otherwise"
        if variant in row.blamed:
            yield _blame(variant, row, "slower")
        elif not _searched(row):
            yield Idea("bisect", f"Find the commit that made {variant} slower", (why,), variant)
        else:
            searched = f"the search in {row.id} named no commit"
            yield Idea("baseline", f"Measure {variant} again, and win back what it lost", (why, searched), variant)


def _blame(variant: str, row: SessionRow, what: str) -> Idea:
    """Proposal to revert or fix the commit that `row` blames. `what`: `wrong` or `slower`."""
    commit = row.blamed[variant].partition(" ")[0]
    if commit == UNCOMMITTED:
        why = f"{row.id} found that they made {variant} {what}"
        return Idea("quick", "Mend or undo the uncommitted changes, then run it again", (why,), variant)
    why = f"{row.id} named it as the commit that made {variant} {what}"
    objective = f"Take back or mend {row.blamed[variant]}, then run it again"
    return Idea("quick", objective, (why,), variant, blamed=commit)


def _searched(row: SessionRow) -> bool:
    """True if the session completed a bisection."""
    return any(step.pattern == "git-bisect" and step.status in ("passed", "failed") for step in row.steps)


def _failed(rows: Sequence[SessionRow]) -> Iterator[Idea]:
    """If the last session failed with an error: its most frequent failure so far."""
    for row in rows[-1:]:
        if row.status != "failed" or row.incorrect or row.regressed or not row.failures:
            continue
        keys = {failure.text: failure.key or failure.text for failure in row.failures}
        counts = {
            signature: sum(any(key in (other.key, other.text) for other in past.failures) for past in rows)
            for signature, key in keys.items()
        }
        failure = max(row.failures, key=lambda failure: counts[failure.text])
        before = counts[failure.text] - 1
        why = [f"it failed in {row.id}{f' and {before} before it' if before > 0 else ''}: {failure.message}"]
        why += [f"what usually cures it: {failure.hint}"] if failure.hint else []
        variants = (*row.variants, *row.emulated)
        variant = variants[0] if len(variants) == 1 else None
        yield Idea(row.plan, f"Mend {failure.pattern}/{failure.step} and run again", tuple(why), variant)


def _slow(rows: Sequence[SessionRow], now: TargetState, lost: Mapping[str, int]) -> Iterator[Idea]:
    """Variants slower than `AHEAD` x baseline, largest saving first; after `LOST` rejections last.

    A plan that ended on these files with nothing kept is not proposed for them again.
    """
    promised = _promised(rows)
    sure = {
        name: row for row in rows for name in row.ratios if name not in row.inconclusive and name in now.compiled
    }
    values = {name: _value(name, row, now.weights, promised) for name, row in sure.items()}
    behind = [name for name, (ratio, _, _) in values.items() if ratio < AHEAD]
    for variant in sorted(behind, key=lambda name: (lost.get(name, 0) >= LOST, -values[name][1])):
        (ratio, _, why), rejected = values[variant], lost.get(variant, 0)
        reasons = [why, f"{variant} ran at {plain_ratio(ratio)} of the baseline's speed in {sure[variant].id}"]
        if rejected:
            reasons.append(f"{rejected} of its changes lost in this environment and are not proposed again")
        if rejected < LOST and not _ran("optimize", variant, rows, now.ground):
            yield Idea("optimize", f"Make {variant} faster", tuple(reasons), variant)
        elif variant in now.tunable and not _ran("tune", variant, rows, now.ground):
            yield Idea("tune", f"Search {variant}'s tiles and warps", tuple(reasons), variant)


def _value(
    variant: str, row: SessionRow, weights: Mapping[str, float], promised: Mapping[tuple[str, str], Promise]
) -> tuple[float, float, str]:
    """Weighted geometric mean of the ratio, largest share of time to save, and the reason."""
    speeds = row.speeds.get(variant) or {"its workloads": row.ratios[variant]}
    shares = {name: weights.get(name, 1.0) for name in speeds}
    whole = sum(shares.values())
    mean = math.exp(sum(shares[name] * math.log(ratio) for name, ratio in speeds.items()) / whole)
    options = []
    for name, ratio in speeds.items():
        advice = promised.get((variant, name))
        gain = math.sqrt(math.prod(advice.stated)) if advice else max(1.0, AHEAD / ratio)
        source = f"advice on {advice.advice} promises" if advice else f"{AHEAD}x the baseline would be"
        share = shares[name] / whole
        takes = f"{name} {'take' if name == 'its workloads' else 'takes'} {100 * share:.0f} % of the time"
        options.append((time_share_won(ratio, share, gain), f"{takes}, and {source} {say.times(gain)} there"))
    return (mean, *max(options))


def _promised(rows: Sequence[SessionRow]) -> dict[tuple[str, str], Promise]:
    """Variant and workload to the gain that the variant's latest profile promises."""
    last = {promise.variant: promise for row in rows for promise in row.promises}
    return {(promise.variant, promise.workload): promise.promise for promise in last.values()}


def _ran(plan: str, variant: str, rows: Sequence[SessionRow], ground: str) -> bool:
    """True if a session of this plan ended on these files with this variant."""
    ended = (row for row in rows if row.status is not None and row.status not in RESUMABLE)
    return any(
        (row.plan, row.ground) == (plan, ground) and variant in (*row.variants, *row.emulated) for row in ended
    )


def _fallback_idea(rows: Sequence[SessionRow], now: TargetState) -> Idea:
    """The last proposal: something untried on these files, else that the user edits next."""
    here = [row for row in rows if row.measured_hash == now.ground]
    measured = [row for row in here if row.ratios]
    if measured and measured[-1].inconclusive and len(measured) < ENOUGH:
        why = f"{', '.join(measured[-1].inconclusive)} could not be judged in {measured[-1].id}"
        return Idea("baseline", "Measure again on a quieter machine", (why,))
    claim = now.claim(rows)
    if now.for_gpu and "kernels" not in {row.plan for row in here}:
        return Idea("kernels", "Widen the gate, for nothing is left to make faster here", claim)
    timed = {name for row in measured for name in row.ratios}
    for name in sorted(timed.intersection(now.tunable)):
        if not _ran("tune", name, rows, now.ground):
            why = "its values were not searched on these files; everything else was tried"
            return Idea("tune", f"Search {name}'s tiles and warps", (why,), name)
    return Idea("quick", "Nothing is left to do here. After the next edit, verify and measure it", claim)


def benefit(idea: Idea, rows: Sequence[SessionRow]) -> str:
    """What the proposed session may bring. `rows`: one target's sessions, oldest first."""
    if idea.take:
        return "the gain that was measured, in your own files"
    if idea.plan not in ("optimize", "tune") or not idea.variant:
        return "an answer"
    promises = [
        (workload, promise) for (name, workload), promise in _promised(rows).items() if name == idea.variant
    ]
    if not promises:
        return f"{idea.variant} faster; no profile has promised how much"
    workload, promise = promises[-1]
    return f"{idea.variant} faster on {workload}, by advice on {promise.advice}: {promise.text}"
