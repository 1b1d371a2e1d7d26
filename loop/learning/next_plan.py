"""What should the next session do, and why? What is wrong comes first, then what was not measured, then speed."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from loop.base.ratios import plain_ratio
from loop.learning.present import Present, never_judged, wrong
from loop.learning.statistics import PatternStatistics
from loop.model.bisect import UNCOMMITTED
from loop.model.change import KeptChange
from loop.model.gain import Promise
from loop.model.index import SessionRow
from loop.model.record import RESUMABLE
from loop.profile.bottleneck import AHEAD, worth
from loop.profile.promised import in_words, outcomes, renewed
from loop.report import format as say
from loop.store.judgements import StandingFailure, wrong_builds

LOST = 2
"""Changes of a variant that were taken back, with none kept since, after which another way is looked for."""
ENOUGH = 2
"""Sessions that measured the same files, after which one that could not judge is not repeated."""


@dataclass(frozen=True)
class Idea:
    """One thing that the next session could do."""

    plan: str
    """Name of the plan."""
    objective: str
    """What for, in one sentence."""
    why: tuple[str, ...]
    """What in the records leads to it."""
    variant: str | None = None
    """The variant it is about; None for all."""
    resume: str | None = None
    """The session that is gone on with, instead of a new one."""
    take: KeptChange | None = None
    """The kept change that is to be taken over before."""
    blamed: str = ""
    """The commit that is to be taken back or mended before."""
    repeats: StandingFailure | None = None
    """What failed and is to be run again: with its seed, threads and device."""


@dataclass(frozen=True)
class Benefit:
    """What a session may bring, with the evidence for it."""

    text: str
    minutes: float | None
    """Minutes that its patterns avoid: the mean of earlier sessions times the chance of an answer."""
    evidence: Literal["measured"] | None
    """None where nothing is known."""
    gain: Promise | None = None
    """The gain that the last profile promised; None where none did."""


def ideas(
    rows: Sequence[SessionRow], now: Present, lost: Mapping[str, int], standings: Mapping[str, PatternStatistics]
) -> tuple[Idea, ...]:
    """What could be done next, the most urgent first; the last one is for where nothing else can be run.

    `rows`: sessions of one target, oldest first. `lost`: changes of a variant that were taken back since the last
    that was kept.
    """
    there = [row for row in rows if not row.recorded]
    own = [row for row in there if row.status is not None]
    tuning = standings.get("tuning")
    searchable = now.tunable if tuning and tuning.status not in ("doubtful", "retired") else ()
    unmeasured = tuple(_unmeasured(own, now.ground))
    found = [
        *_waiting(own),
        *_taken_over(own, now.ground),
        *_incorrect(there, now),
        *_regressed(own),
        *_failed(own),
        *unmeasured,
        *_missed(own),
        *_slow(own, now, lost, searchable),
        *(() if unmeasured else _unjudged(there, now)),
    ]
    return (*found, _nothing(there, now, searchable))


def _waiting(rows: Sequence[SessionRow]) -> Iterator[Idea]:
    last = rows[-1:]
    for row in last:
        if row.status in RESUMABLE:
            why = f"{row.id} is {row.status}: {row.reason}"
            yield Idea(row.plan, "Go on with the session that stopped", (why,), resume=row.id)


def _taken_over(rows: Sequence[SessionRow], ground: str) -> Iterator[Idea]:
    """What the last session kept is not in these files yet."""
    for row in rows[-1:]:
        for kept in row.kept if row.ground == ground else ():
            why = (f"{kept.variant} is {say.gained(kept)}, by {row.id}",)
            yield Idea("quick", f"Take over the kept change of {kept.variant}, then verify it", why, take=kept)


ELSEWHERE = ("optimize", "tune", "bisect", "debug")
"""Plans that do more than verify: what failed in one of them is verified again by `baseline`."""


def _incorrect(rows: Sequence[SessionRow], now: Present) -> Iterator[Idea]:
    """What failed stands until it passes on other sources: the next session runs exactly that again."""
    failures = now.failures(rows)
    for variant in dict.fromkeys(failure.judgement.variant for failure in failures):
        mine = [failure for failure in failures if failure.judgement.variant == variant]
        yield _mended(variant, mine, rows, now)


def _mended(variant: str, mine: Sequence[StandingFailure], rows: Sequence[SessionRow], now: Present) -> Idea:
    """How a wrong variant becomes right: by an edit, by taking a commit back, or by finding that commit first."""
    row, why = mine[0].row, (wrong(mine),)
    plan = "baseline" if row.plan in ELSEWHERE else row.plan
    if row.ground != now.ground:
        objective = f"Files have changed since {variant} was wrong: run again what failed"
        return Idea(plan, objective, why, variant, repeats=mine[0])
    if variant in row.blamed:
        blamed = _blame(variant, row, "wrong")
        return replace(blamed, why=(*blamed.why, *why), repeats=mine[0])
    good = _good(variant, rows)
    if good and row.commit not in (None, good.commit) and not _searched(row):
        known = f"{good.id} found it right at commit {str(good.commit)[:12]}"
        return Idea("bisect", f"Find the commit that made {variant} wrong", (*why, known), variant)
    return Idea(plan, f"Mend {variant}, then run again what failed", why, variant, repeats=mine[0])


def _good(variant: str, rows: Sequence[SessionRow]) -> SessionRow | None:
    """The last session that found a variant right at a commit, of a build that none found wrong."""
    bad = wrong_builds(rows)
    right = (row for row in reversed(rows) if variant in row.right and row.commit)
    return next((row for row in right if not row.has_build(variant, bad)), None)


def _regressed(rows: Sequence[SessionRow]) -> Iterator[Idea]:
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
            found = f"the search in {row.id} named no commit"
            yield Idea("baseline", f"Measure {variant} again, and win back what it lost", (why, found), variant)


def _blame(variant: str, row: SessionRow, what: str) -> Idea:
    """A commit is named: what is left is to take it back or to mend it, and to look again."""
    why = f"{row.id} named it as the commit that made {variant} {what}"
    commit = row.blamed[variant].partition(" ")[0]
    if commit == UNCOMMITTED:
        why = f"{row.id} found that they made {variant} {what}"
        return Idea("quick", "Mend or undo the uncommitted changes, then run it again", (why,), variant)
    objective = f"Take back or mend {row.blamed[variant]}, then run it again"
    return Idea("quick", objective, (why,), variant, blamed=commit)


def _searched(row: SessionRow) -> bool:
    """Whether it has looked for a commit."""
    return any(step.pattern == "git-bisect" and step.status in ("passed", "failed") for step in row.steps)


def _missed(rows: Sequence[SessionRow]) -> Iterator[Idea]:
    """The last session missed its objective, and its plan names another as the answer."""
    for row in rows[-1:]:
        if row.missed and row.otherwise and row.otherwise not in {run.pattern for run in row.runs}:
            why = f"{row.id} missed its objective: {row.missed}"
            yield Idea(row.otherwise, "Do what the plan names as the answer to a miss", (why,))


def _failed(rows: Sequence[SessionRow]) -> Iterator[Idea]:
    """The last session ended with an error: the failure that came most often before."""
    row = rows[-1] if rows else None
    if row is None or row.status != "failed" or row.incorrect or row.regressed:
        return
    times = {failure.text: _count(rows, failure.key or failure.text) for failure in row.failures}
    for one in sorted(row.failures, key=lambda one: -times[one.text])[:1]:
        often = times[one.text]
        before = f" and {often - 1} before it" if often > 1 else ""
        why = [f"it failed in {row.id}{before}: {one.message}"]
        why += [f"what usually cures it: {one.hint}"] if one.hint else []
        alone = (*row.variants, *row.emulated)
        variant = alone[0] if len(alone) == 1 else None
        yield Idea(row.plan, f"Mend {one.pattern}/{one.step} and run again", tuple(why), variant)


def _count(rows: Iterable[SessionRow], key: str) -> int:
    return sum(any(key in (failure.key, failure.text) for failure in row.failures) for row in rows)


def _unmeasured(rows: Sequence[SessionRow], ground: str) -> Iterator[Idea]:
    measured = [row for row in rows if row.ratios]
    if not measured:
        yield Idea("baseline", "Build, verify and measure against the library", ("no session has measured speed",))
    elif all(ground not in (row.measured, row.ground) for row in measured):
        why = f"the target's files have changed since {measured[-1].id}, the last session that measured"
        yield Idea("baseline", "Verify and measure what has changed", (why,))


def _slow(
    rows: Sequence[SessionRow], now: Present, lost: Mapping[str, int], tunable: Collection[str]
) -> Iterator[Idea]:
    """Compiled variants behind the baseline, what is worth most first; those whose changes kept losing come last.

    What ended on these files once, with nothing kept, is not proposed on them again.
    """
    promised = _promised(rows)
    sure = {name: row for row in rows for name in row.ratios if name not in row.unsure and name in now.compiled}
    behind = {name: _worth(name, row, now.weights, promised) for name, row in sure.items()}
    behind = {name: gain for name, gain in behind.items() if gain.ratio < AHEAD}
    for variant in sorted(behind, key=lambda name: (lost.get(name, 0) >= LOST, -behind[name].saved)):
        best, given_up = behind[variant], lost.get(variant, 0)
        why = [
            best.why,
            f"{variant} ran at {plain_ratio(best.ratio)} of the baseline's speed in {sure[variant].id}",
        ]
        if given_up:
            why.append(f"{given_up} of its changes lost in this environment and are not proposed again")
        if given_up < LOST and not _ran("optimize", variant, rows, now.ground):
            yield Idea("optimize", f"Make {variant} faster", tuple(why), variant)
        elif variant in tunable and not _ran("tune", variant, rows, now.ground):
            yield _search(variant, *why)


@dataclass(frozen=True)
class _Worth:
    """What making a variant faster is worth, on the workload where that is most."""

    ratio: float
    """Mean against the baseline, by weight."""
    saved: float
    """Share of the time."""
    why: str


def _worth(
    variant: str, row: SessionRow, weights: Mapping[str, float], promised: Mapping[tuple[str, str], Promise]
) -> _Worth:
    speeds = row.speeds.get(variant) or {"its workloads": row.ratios[variant]}
    shares = {name: weights.get(name, 1.0) for name in speeds}
    whole = sum(shares.values())
    mean = math.exp(sum(shares[name] * math.log(ratio) for name, ratio in speeds.items()) / whole)
    options = []
    for name, ratio in speeds.items():
        advice = promised.get((variant, name))
        gain = math.sqrt(math.prod(advice.expected)) if advice else max(1.0, AHEAD / ratio)
        source = f"advice on {advice.advice} promises" if advice else f"{AHEAD}x the baseline would be"
        share = shares[name] / whole
        share_said = f"{name} {'take' if name == 'its workloads' else 'takes'} {100 * share:.0f} % of the time"
        options.append((worth(ratio, share, gain), f"{share_said}, and {source} {say.times(gain)} there"))
    saved, why = max(options)
    return _Worth(mean, saved, why)


def _promised(rows: Sequence[SessionRow]) -> dict[tuple[str, str], Promise]:
    """Variant and workload to what the last profile of the variant promises by now."""
    last = {promise.variant: promise for row in rows for promise in row.promises}
    came = outcomes(rows) if last else ()
    return {(promise.variant, promise.workload): renewed(promise.promise, came) for promise in last.values()}


def _search(variant: str, *why: str) -> Idea:
    return Idea("tune", f"Search {variant}'s tiles and warps", why, variant)


def _ran(plan: str, variant: str, rows: Iterable[SessionRow], ground: str) -> bool:
    """Whether a plan has come to its end on these files."""
    open_or_paused = (None, *RESUMABLE)
    ended = (row for row in rows if row.status not in open_or_paused and (row.plan, row.ground) == (plan, ground))
    return any(variant in (*row.variants, *row.emulated) for row in ended)


def _unjudged(rows: Sequence[SessionRow], now: Present) -> Iterator[Idea]:
    """What no session judged on these files, unless `baseline` has tried to."""
    missing = {
        name: sets for name, sets in now.unjudged(rows).items() if not _ran("baseline", name, rows, now.ground)
    }
    if missing:
        variant = next(iter(missing)) if len(missing) == 1 else None
        yield Idea(
            "baseline", "Judge what no session has judged on these files", (never_judged(missing),), variant
        )


def _nothing(rows: Sequence[SessionRow], now: Present, tunable: Collection[str]) -> Idea:
    """Nothing more can be run: what was not tried on these files, then that somebody has to edit."""
    here = [row for row in rows if row.measured == now.ground]
    measured = [row for row in here if row.ratios]
    if measured and measured[-1].unsure and len(measured) < ENOUGH:
        why = f"{', '.join(measured[-1].unsure)} could not be judged in {measured[-1].id}"
        return Idea("baseline", "Measure again on a quieter machine", (why,))
    claim = now.claim(rows)
    if now.for_gpu and "kernels" not in {row.plan for row in here}:
        return Idea("kernels", "Widen the gate, for nothing is left to make faster here", claim)
    timed = {name for row in measured for name in row.ratios}
    untried = [name for name in timed.intersection(tunable) if not _ran("tune", name, rows, now.ground)]
    if untried:
        return _search(min(untried), "its values were not searched on these files; everything else was tried")
    return Idea("quick", "Nothing is left to do here. After the next edit, verify and measure it", claim)


def benefit(
    idea: Idea,
    chain: Sequence[str],
    standings: Mapping[str, PatternStatistics],
    ground_is_new: bool,
    rows: Sequence[SessionRow] = (),
) -> Benefit:
    """What running a chain of patterns may bring. `rows`: sessions of one target, oldest first."""
    if idea.take:
        return Benefit("the gain that was measured, in your own files", None, "measured")
    if idea.plan in ("optimize", "tune") and idea.variant:
        return _faster(idea.variant, rows)
    if not ground_is_new:
        return Benefit("an answer; what is repeated on the same files saves nothing", 0.0, "measured")
    parts = [known for name in chain if (known := standings.get(name)) and known.saved_sessions]
    if not parts:
        return Benefit("an answer; no session shows what its patterns avoid", None, None)
    minutes = sum(
        known.saved_minutes / known.saved_sessions * (known.success.mean if known.success else 0.5)
        for known in parts
    )
    names = ", ".join(known.name for known in parts)
    return Benefit(f"{minutes:.1f} minutes that {names} spare, as measured here", minutes, "measured")


def _faster(variant: str, rows: Sequence[SessionRow]) -> Benefit:
    """What the last profile of a variant promised, by what has come of such advice since."""
    promises = [(workload, promise) for (name, workload), promise in _promised(rows).items() if name == variant]
    if not promises:
        return Benefit(f"{variant} faster; no profile has promised how much", None, None)
    workload, promise = promises[-1]
    gain = f"{variant} faster on {workload}, by advice on {promise.advice}: {in_words(promise)}"
    return Benefit(gain, None, None, promise)
