"""Which commit caused the regression: what to observe next, or the answer. Pure: measures nothing.

The next request depends on the probes alone, so an interrupted search continues from saved probes.
A *position* counts the different builds along the history: 0 is the good end.

1. Both ends are observed until they differ.
2. The middle commit of those in question is observed until its side is decided.
3. Builds near the step show how far builds differ by chance. If this noise hides a commit's side,
   it stays in question: the answer is a range, or none.
4. Fresh observations of culprit and parent confirm the culprit. If they do not, the search
   continues without it, and gives up after the third.
5. If a culprit explains too little of the whole step, both sides of it are searched.

A gap lies between two observed positions. Its score is the log likelihood that the step lies in it
(`Pairs`, `Runs`). Positions share the probability of their gap, which is its part of exp(score).
"""

import functools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import fmean, median, stdev
from typing import Literal

from loop.base.stats import significant, speedup_text, winsorise
from loop.model.bisect import UNCOMMITTED, Claim, Metric, Probe
from loop.timing.verdicts import MARGIN, e_value


@dataclass
class Confirmation:
    """Fresh observations of a suspect and its parent, which have to show a claim."""

    suspect: int
    """Position of the suspect, after `parent`."""
    parent: int
    claim: Claim
    values_at: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Observed position to its values, as in `Observations.values_at`."""


@dataclass(frozen=True)
class SearchProblem:
    """The commits to search, oldest first: the first is the good end, the last the bad one.
    Neighbours that build the same program share a *position*."""

    commits: tuple[str, ...]
    """Their hashes."""
    programs: tuple[str, ...]
    """For each commit a name of the program it builds: equal names, equal programs."""
    metric: Metric = "latency"

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """Position of each commit: 0 for the good end, one more at each commit with a new program.
        Commits between two of the same program share its position."""
        last_index_of = {program: index for index, program in enumerate(self.programs)}
        positions, position, shared_until = list[int](), 0, last_index_of[self.programs[0]]
        for index, program in enumerate(self.programs):
            if index > shared_until:
                position += 1
            positions.append(position)
            shared_until = max(shared_until, last_index_of[program])
        return tuple(positions)

    @functools.cached_property
    def first_commits(self) -> tuple[int, ...]:
        """Index of the first commit of each position: it makes the step to this position."""
        return tuple(self.positions.index(position) for position in range(self.last_position + 1))

    @property
    def last_position(self) -> int:
        """The position of the bad end."""
        return self.positions[-1]

    def commit_at(self, position: int) -> int:
        """Index of the commit to build for a position: its first, or the bad end itself."""
        return len(self.positions) - 1 if position == self.last_position else self.first_commits[position]

    def short_hash(self, position: int) -> str:
        """Short hash of a position's commit, for messages."""
        return self.commits[self.commit_at(position)][:12]


@dataclass(frozen=True)
class ProbeRequest:
    """A request: build this commit if needed, and observe it `count` times."""

    commit: int
    """Index into the commits of the problem."""
    count: int
    """Requested observations; fewer may result."""
    why: str
    """The reason, shown in the table of probes."""
    against: int = 0
    """The commit it is timed in pairs with: 0, the good end, except in a confirmation."""
    claim: Claim | None = None
    """Set in a confirmation: its observations are fresh, and the search does not use them."""


@dataclass(frozen=True)
class Culprit:
    """A culprit, or a run of commits that contains one."""

    first: int
    """Index of the culprit, or of the first commit of the run."""
    last: int
    """Index of the culprit, or of the last commit of the run."""
    evidence: float
    """e-value of the confirmation."""
    step: float
    """Latency: log(its time / its parent's). Correctness: rise of the failure rate."""


@dataclass(frozen=True)
class SearchEnd:
    """The result of a search."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    why: str
    probabilities: tuple[float, ...] = ()
    """Probability of each position that the step is there, if computed. With several culprits, it
    adds up to 1 in each part of the history."""
    confirmed: tuple[Culprit, ...] = ()
    swapped: bool = False
    """Whether the regression is at the good end."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """Indices of the confirmed culprits that are a single commit."""
        return tuple(culprit.first for culprit in self.confirmed if culprit.first == culprit.last)

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last index of the first run that contains a culprit; None without such a run."""
        runs = [(culprit.first, culprit.last) for culprit in self.confirmed if culprit.first != culprit.last]
        return runs[0] if runs else None


CONFIRMING, REJECTING = 100.0, 20.0
"""E-value that confirms a culprit; e-value that rejects it."""
ConfirmationState = Literal["confirmed", "failed", "open"]


@dataclass(frozen=True)
class LevelsFit:
    """Two levels, good and bad, fitted to a range's observations: log ratios to the good end, or failure rates."""

    positions: Sequence[int]
    """The observed positions, in order."""
    scores: Sequence[float]
    """Score of each gap between two neighbouring positions."""
    good_level: float
    bad_level: float
    noise: float = 0.0
    """Noise between builds: standard deviation of builds on one level."""
    midpoint_variance: float = 0.0
    """Variance of the midpoint between the levels."""

    @property
    def step(self) -> float:
        """Bad level less good level, and above 0."""
        return max(self.bad_level - self.good_level, 1e-9)


class Observations:
    """The probes so far, by position; `Pairs` and `Runs` draw conclusions from them. Methods name a
    range of positions by its ends, `low` and `high`, which differ."""

    def __init__(self, problem: SearchProblem, probes: Sequence[Probe]) -> None:
        """Sort the probes' values by position: commits that build the same program share one, the good end is 0. A
        measured probe without a finite value counts as lost. Ratios to another commit than the good end count in a
        confirmation only."""
        self.problem = problem
        self.fit = functools.cache(self._fit)
        self.values_at: dict[int, list[float]] = {}
        """Position to log(time of the commit / time of the good end); for correctness to 1 for
        right, 0 for wrong. Without confirmations."""
        self.confirmations: dict[tuple[int, int, int], Confirmation] = {}
        """Positions of suspect and parent, and number of the claim, to the confirmation."""
        self.untestable_reasons: dict[int, str] = {}
        """Position that cannot be built or tried, to the reason."""
        self.built_positions: set[int] = set()
        self.lost_reasons: list[str] = []
        """Reasons of the latest consecutive probes without a result."""
        self.total_count = 0  # Of observed values, those of confirmations included.
        index_of = {commit: index for index, commit in enumerate(problem.commits)}
        for probe in probes:
            values = [value for value in probe.values if math.isfinite(value)]
            if probe.status == "lost" or (probe.status == "measured" and not values):
                self.lost_reasons.append(probe.reason or "no value came")
                continue
            self.lost_reasons = []
            position = problem.positions[index_of[probe.commit]]
            reference = problem.positions[index_of[probe.against]]
            if probe.status == "broken":
                self.untestable_reasons[position] = probe.reason
                continue
            self.built_positions |= {position, reference}
            if probe.claim is not None:  # A confirmation may observe either side of the step.
                suspect, parent = max(position, reference), min(position, reference)
                confirmation = Confirmation(suspect, parent, probe.claim)
                key = suspect, parent, probe.claim.number
                self.confirmations.setdefault(key, confirmation).values_at[position] += values
            elif problem.metric == "correctness" or reference == 0:
                self.values_at.setdefault(position, []).extend(values)
            else:
                continue
            self.total_count += len(values)

    def request(self, position: int, count: int, why: str) -> ProbeRequest:
        """A request to observe a position `count` times. `why`: reason, for the table of probes."""
        return ProbeRequest(self.problem.commit_at(position), count, why)

    def count_at(self, position: int) -> int:
        """Number of the search's observations at a position, without confirmations."""
        return len(self.values_at.get(position, ()))

    def _fit(self, low: int, high: int, *, strict: bool) -> LevelsFit:
        """Fit a good and a bad level to the observations of a range, and score the gaps between them."""
        raise NotImplementedError


TYPICAL_NOISE, MOST_NOISE = 0.005, 0.02
"""Noise between builds (standard deviation of the log time): assumed during a search; and before
a commit is blamed, until the observed builds rule it out."""
RULED_OUT_Z = -2.33
"""Normal quantile: noise is ruled out if builds scatter this little in 1 of 100 cases."""
RULING_OUT_BUILDS = 9
"""Builds, beyond two, that are enough to rule out noise."""
LEAST_STEP, LEAST_STEP_SINGLE = 2.5, 4.0
"""Least step to blame a commit or a range, as a multiple of the noise between builds; and if one
side of the step has a single build."""
DECISIVE_LOG_ODDS = math.log(249)
"""Log odds that decide the side of a build."""
OUTLIER_DEVIATIONS = 4.5
"""A pair this many median deviations beyond both levels is clipped."""
ENDS_FIRST_PAIRS, ENDS_LEAST_PAIRS, ENDS_MOST_PAIRS = 3, 8, 200
"""Pairs of the ends before a first look; before `no_regression`; before `inconclusive`."""
NARROWING_Z, DIFFERENCE_Z, NO_DIFFERENCE_Z = 3.0, 4.5, 2.6
"""Standard errors by which ends differ, once commits between them were observed; and before;
standard errors above which a difference is ruled out."""
NEIGHBOUR_NEED, NEIGHBOUR_MOST_NEED = 1.5, 1.75
"""Precision of a build beside the step, as a multiple of its vote's need; and of the noise."""
LEVELS_APART, LEVELS_APART_Z = 0.065, 2.8
"""Least distance of a third level from both others: log ratio, and standard errors of pairs."""
MOST_NEEDED, MOST_NEEDED_NOISY = 5.0, 2.0
"""After this many times the pairs that a vote needs, more would not decide it; and if noise
between builds leaves little to decide."""
BATCH_MOST = 32
"""Most pairs in one request."""
LEAST_SHARE = 0.15
"""Least share of the whole step that a further culprit explains."""
CONFIRM_ABOVE, REJECT_BELOW = 0.3, 0.5
"""Share of the step that a confirmed culprit exceeds; below the other share it is rejected."""
FIRST_PAIRS, MOST_PAIRS = 4, 60
"""Pairs of a confirmation before a first look; and at most, unless noise needs more."""
EXPLAINED_SHARE, EXPLAINED_Z = 0.7, 1.645
"""If a culprit explains less of the step, by this many standard errors, there are others."""
FAST_TODAY = "the bad end is as fast today, so what was slow may have been the machine or its environment"


@dataclass(frozen=True)
class TimedBuild:
    """One build: its mean log ratio to the good end, and the variance of this mean."""

    position: int
    mean: float
    variance: float


def estimate_noise(residuals: Sequence[tuple[float, float]], quantile: float) -> float:
    """The noise between builds, from (squared residual, variance of the mean) of each: solves sum of residual^2 /
    (noise^2 + variance) = the chi^2 quantile that belongs to the standard normal `quantile` (0: the median; by
    Wilson and Hilferty 1931). With too few builds 0; for a quantile below 0 infinity: they rule out no noise."""
    freedom = len(residuals) - 2
    if freedom < (RULING_OUT_BUILDS if quantile < 0 else 1):
        return math.inf if quantile < 0 else 0.0
    part = 2 / (9 * freedom)
    chi_squared_quantile = freedom * max(1 - part + quantile * math.sqrt(part), 0.01) ** 3

    def chi_squared(noise: float) -> float:
        return math.fsum(square / (noise**2 + variance + 1e-18) for square, variance in residuals)

    if chi_squared(0.0) <= chi_squared_quantile:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(30):  # Bisection: chi_squared falls as the noise grows.
        middle = (low + high) / 2
        low, high = (middle, high) if chi_squared(middle) > chi_squared_quantile else (low, middle)
    return high


class Pairs(Observations):
    """Log ratios of pairs at each commit: above 0 the commit is slower than the good end."""

    @functools.cached_property
    def clipped(self) -> dict[int, list[float]]:
        """Position to its log ratios, with outliers clipped to just beyond both levels."""
        observed = {position: values for position, values in self.values_at.items() if values}
        deviations = list[float]()
        for values in observed.values():
            if len(values) > 2:
                centre = median(values)
                deviations += [abs(value - centre) for value in values]
        if len(deviations) < 6:  # Too few to tell what an outlier is.
            return observed
        margin = OUTLIER_DEVIATIONS * max(median(deviations), 1e-4)
        bad_level = median(observed.get(self.problem.last_position, [0.0]))
        lowest, highest = min(0.0, bad_level) - margin, max(0.0, bad_level) + margin
        return {position: [min(max(x, lowest), highest) for x in values] for position, values in observed.items()}

    @functools.cached_property
    def pair_variance(self) -> float:
        """Variance of one pair about its build's mean, enlarged if few pairs estimate it."""
        values_of_builds = [values for values in self.clipped.values() if len(values) > 1]
        freedom = sum(len(values) - 1 for values in values_of_builds)
        squares = math.fsum((value - fmean(values)) ** 2 for values in values_of_builds for value in values)
        return max(squares / freedom * (1 + 6 / freedom) if freedom else 0.0, 1e-12)

    def timed_builds(self, low: int, high: int) -> list[TimedBuild]:
        """The observed builds of a range, in order. All pairs refer to the good end: its mean is 0."""
        builds = [TimedBuild(0, 0.0, 0.0)] if low == 0 else []
        for position, values in sorted(self.clipped.items()):
            if low <= position <= high and position > 0:
                builds.append(TimedBuild(position, fmean(values), self.pair_variance / len(values)))
        return builds

    def _fit(self, low: int, high: int, *, strict: bool) -> LevelsFit:
        """Fit levels, noise and the gap of the step in turns, from the two ends on. `strict`:
        assume as much noise between builds as they do not rule out."""
        builds = self.timed_builds(low, high)
        pair_noise, most_noise = 4 * math.sqrt(self.pair_variance), MOST_NOISE if strict else TYPICAL_NOISE
        good_level, bad_level = builds[0].mean, builds[-1].mean
        noise, midpoint_variance = min(most_noise, pair_noise), 0.0
        scores = [0.0] * (len(builds) - 1)
        for _ in range(4):  # Iterate: levels, noise and best gap depend on each other.
            step, midpoint = max(bad_level - good_level, 1e-9), (good_level + bad_level) / 2
            votes = list[float]()
            """Log odds of each build that it is bad."""
            for build in builds:
                offset = min(max(build.mean - midpoint, -step), step)  # An outlier votes like two.
                votes.append(offset * step / (noise**2 + build.variance + midpoint_variance))
            scores = list(accumulate(-vote for vote in votes))[:-1]  # All before a gap are good.
            best_gap = max(range(len(scores)), key=scores.__getitem__)
            levels, residuals, midpoint_variance = list[float](), list[tuple[float, float]](), 0.0
            for side in (builds[: best_gap + 1], builds[best_gap + 1 :]):
                weights = [1 / (noise**2 + build.variance) for build in side]
                weighted = [weight * build.mean for weight, build in zip(weights, side, strict=True)]
                level = math.fsum(weighted) / sum(weights)
                levels.append(level)
                midpoint_variance += 0.25 / sum(weights)
                residuals += [((build.mean - level) ** 2, build.variance) for build in side]
            good_level, bad_level = levels
            observed_noise = estimate_noise(residuals, 0.0)
            # Without noise in pairs, builds differ little.
            assumed_noise = min(most_noise, max(pair_noise, 4 * observed_noise))
            if strict:
                possible_noise = estimate_noise(residuals, RULED_OUT_Z)
                assumed_noise = min(assumed_noise, max(possible_noise, TYPICAL_NOISE))
            noise = max(observed_noise, assumed_noise, 1e-6)
        positions = [build.position for build in builds]
        return LevelsFit(positions, scores, good_level, bad_level, noise, midpoint_variance)

    def find_least_step(self, low: int, high: int, parent: int, suspect: int) -> float:
        """The least step between two positions that clearly exceeds the noise between builds. A single
        build on one side may be off its level by chance, so its step has to be larger."""
        builds = self.timed_builds(low, high)
        good_count = sum(build.position <= parent for build in builds)
        bad_count = sum(build.position >= suspect for build in builds)
        least_factor = LEAST_STEP_SINGLE if min(good_count, bad_count) < 2 else LEAST_STEP
        return least_factor * self.fit(low, high, strict=True).noise

    def next_count(self, low: int, high: int, position: int, *, strict: bool) -> int:
        """Pairs to add to a build whose side is not decided; 0 if more would not decide it. Its vote decides once
        the variances of noise, midpoint and pairs add up to less than step^2 / (2 log odds)."""
        count, fit = self.count_at(position), self.fit(low, high, strict=strict)
        allowed_variance = fit.step**2 / 2 / DECISIVE_LOG_ODDS - fit.noise**2 - fit.midpoint_variance
        needed_pairs = self.pair_variance / max(allowed_variance, fit.noise**2 / 2, 1e-12)
        is_noisy = allowed_variance <= fit.noise**2 / 2
        if count >= (MOST_NEEDED_NOISY * needed_pairs if is_noisy else MOST_NEEDED * needed_pairs + 2):
            return 0
        return min(max(1, math.ceil(needed_pairs / 3), count // 4), BATCH_MOST)

    def plan_neighbours(self, low: int, high: int) -> tuple[int, int]:
        """Pairs of a build beside the step, which shows how builds differ by chance: at a time, and at most."""
        step = self.fit(low, high, strict=True).step
        noise = self.fit(low, high, strict=False).noise
        count = math.ceil(NEIGHBOUR_NEED * self.pair_variance * 2 * DECISIVE_LOG_ODDS / step**2)
        most_count = math.ceil(NEIGHBOUR_MOST_NEED * self.pair_variance / noise**2)
        return min(max(1, count), BATCH_MOST), most_count

    def measure_step(self, low: int, high: int) -> tuple[float, float]:
        """Log ratio of the upper position to the lower, and its standard error from pairs alone."""
        builds = {build.position: build for build in self.timed_builds(low, high)}
        lower, upper = builds[low], builds[high]
        return upper.mean - lower.mean, math.sqrt(upper.variance + lower.variance)

    def compare_ends(self, low: int, high: int) -> ProbeRequest | SearchEnd | None:
        """The next request for an end; None once the ends differ; a result if they do not, or noise hides it."""
        ends = [end for end in (low, high) if end]  # The good end itself is the reference.
        for end in ends:
            if (missing_count := ENDS_FIRST_PAIRS - self.count_at(end)) > 0:
                return self.request(end, missing_count, "end: does the difference show today?")
        step, error = self.measure_step(low, high)
        count, last_position = min(map(self.count_at, ends)), self.problem.last_position
        is_narrowing = any(low < position < high for position in self.clipped)
        if step >= (NARROWING_Z if is_narrowing else DIFFERENCE_Z) * error:
            return None
        if step <= -DIFFERENCE_Z * error and -step > 4 * TYPICAL_NOISE:
            why = f"the good end takes {speedup_text(math.exp(-step), 3)} the time of the bad one"
            return SearchEnd("no_regression", why, swapped=True)
        least_step, largest_step = math.log1p(MARGIN), step + NO_DIFFERENCE_Z * error
        if (low, high) != (0, last_position):  # A part of the history: only a part of the step counts.
            least_step = LEAST_SHARE * abs(self.measure_step(0, last_position)[0])
        if count >= ENDS_LEAST_PAIRS and largest_step < least_step:
            size = f"{math.expm1(step):+.2%} after {count} observations, surely below {math.expm1(least_step):.1%}"
            return SearchEnd("no_regression", f"not reproduced: {size}: {FAST_TODAY}")
        if count >= ENDS_MOST_PAIRS:
            scatter = f"pairs scatter by {math.sqrt(self.pair_variance):.1%}"
            return SearchEnd("inconclusive", f"too noisy: {scatter}, {largest_step:.1%} may be hidden")
        why = f"end: the difference is {step / error:.1f} times its standard error so far"
        return self.request(min(ends, key=self.count_at), 1 + count // 8, why)

    def find_middle_level(self, low: int, high: int) -> int | None:
        """A position between the ends whose build is surely slower than the good end and faster than the bad one,
        so that there are two steps. The one with most pairs; None if there is none."""
        builds = {build.position: build for build in self.timed_builds(low, high)}

        def is_above(upper: int, lower: int) -> bool:
            step = builds[upper].mean - builds[lower].mean
            error = math.sqrt(builds[lower].variance + builds[upper].variance)
            return step >= math.hypot(LEVELS_APART, LEVELS_APART_Z * error)

        least_pairs = 2 if self.pair_variance > TYPICAL_NOISE**2 else 1
        middle = []
        for position in builds:
            is_inside = low < position < high and self.count_at(position) >= least_pairs
            if is_inside and is_above(position, low) and is_above(high, position):
                middle.append(position)
        return max(middle, key=self.count_at, default=None)

    def make_claim(self, low: int, high: int, number: int) -> Claim:
        """The claim that the culprit is slower than its parent by a share (`CONFIRM_ABOVE`) of the whole step."""
        step = self.fit(low, high, strict=True).step
        return Claim(number=number, step=step, sd=math.sqrt(self.pair_variance))

    def judge_confirmation(self, confirmation: Confirmation) -> tuple[ConfirmationState, float]:
        """State of a confirmation so far, and its e-value; it fails if refuted, or after too many pairs."""
        claim, values = confirmation.claim, confirmation.values_at[confirmation.suspect]
        if len(values) < FIRST_PAIRS:
            return "open", 1.0
        pairs = winsorise(values).values
        prior_variance = min(max(1.0, (claim.step / max(claim.sd, 1e-12)) ** 2), 1e4)
        evidence = e_value(pairs, CONFIRM_ABOVE * claim.step, prior_variance)
        if evidence >= CONFIRMING:
            return "confirmed", evidence
        evidence_against = e_value([-pair for pair in pairs], -REJECT_BELOW * claim.step, prior_variance)
        relative_noise = stdev(pairs) / max(claim.step, 1e-12)
        most_pairs = max(MOST_PAIRS, math.ceil(40 * relative_noise**2))  # Then the step is 6 errors.
        is_exhausted = len(values) >= most_pairs
        return ("failed" if evidence_against >= REJECTING or is_exhausted else "open"), evidence

    def request_confirmation(self, confirmation: Confirmation) -> ProbeRequest:
        """A request for more pairs of suspect and parent."""
        suspect, parent, claim = confirmation.suspect, confirmation.parent, confirmation.claim
        problem, count = self.problem, len(confirmation.values_at[suspect])
        names = f"{problem.short_hash(suspect)} slower than {problem.short_hash(parent)}"
        why = f"confirm: is {names} by over {math.expm1(CONFIRM_ABOVE * claim.step):.1%}?"
        commit, against = problem.commit_at(suspect), problem.commit_at(parent)
        return ProbeRequest(commit, max(FIRST_PAIRS - count, 1 + count // 8), why, against, claim)

    def confirmed_step(self, low: int, high: int, confirmation: Confirmation) -> tuple[float, bool]:
        """Mean of the confirming pairs; and whether it is significantly less than the whole step,
        so that another commit has to explain the remainder."""
        pairs = winsorise(confirmation.values_at[confirmation.suspect]).values
        step, error = fmean(pairs), stdev(pairs) / math.sqrt(len(pairs))
        whole_step, whole_error = self.measure_step(low, high)
        sides = ((low, confirmation.parent), (confirmation.suspect, high))
        noises = [self.fit(*side, strict=False).noise for side in sides if len(self.timed_builds(*side)) > 1]
        # Both differences of two builds contain noise between builds.
        build_error = math.sqrt(2 + 2 * EXPLAINED_SHARE**2) * max(noises, default=TYPICAL_NOISE)
        total_error = math.hypot(EXPLAINED_SHARE * whole_error, error, build_error)
        return step, EXPLAINED_SHARE * whole_step - step > EXPLAINED_Z * total_error

    def describe_step(self, step: float) -> str:
        """`3.2 % slower than its parent`, or `takes 4.01 times as long as its parent`."""
        if step < 1:
            return f"{100 * math.expm1(step):.1f} % slower than its parent"
        return f"takes {significant(math.exp(step))} times as long as its parent"


CONSISTENT_RATE = 0.005
"""Failure rate before the step, and pass rate after it, if all results are consistent."""
FIRST_RUNS, CONSISTENT_RUNS = 2, 4
"""First runs of a commit; runs of each end, all failing, before `no_regression`."""
PASSES_MOST, RUNS_MOST = 60, 200
"""Runs of the bad end, all passing, before `no_regression`; runs before `inconclusive`."""
LEAST_RATE = 0.02
"""Rates of a confirmation stay at least this far from 0 and 1."""
CLAIMED_RATES = (0.5, 0.05)
"""Failure rates of bad and good end that the ends are tested for."""
GOOD_TODAY = "so it is good today: what failed before may have come from the machine, the compiler or the inputs"


class Runs(Observations):
    """Runs at each commit; 1 is passed. Fits two rates of failure: before the step and after it."""

    def is_consistent(self, low: int, high: int) -> bool:
        """Whether no commit of a range has both failed and passed so far."""
        runs_of_commits = [runs for position, runs in self.values_at.items() if low <= position <= high]
        return all(all(runs) or not any(runs) for runs in runs_of_commits)

    def compare_ends(self, low: int, high: int) -> ProbeRequest | SearchEnd | None:
        """The next run of an end; None once the bad one evidently fails more often; a result if it does not."""
        for end in (high, low):
            if (missing_count := FIRST_RUNS - self.count_at(end)) > 0:
                return self.request(end, missing_count, "end: does it fail today, and does the good end pass?")
        good, bad = self.values_at[low], self.values_at[high]
        if self.is_consistent(low, high):
            differ, are_swapped = all(good) and not any(bad), all(bad) and not any(good)
        else:
            differ = runs_evidence(bad, good, CLAIMED_RATES) >= CONFIRMING
            are_swapped = runs_evidence(good, bad, CLAIMED_RATES) >= CONFIRMING
        if differ:
            return None
        if are_swapped:
            return SearchEnd("no_regression", "the good end fails and the bad one passes", swapped=True)
        least_count = min(len(good), len(bad))
        if least_count >= CONSISTENT_RUNS and not any(good) and not any(bad):
            why = f"the good end fails as well, {len(good)} times of {len(good)}: it is not good today"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if len(bad) >= PASSES_MOST and all(bad):
            why = f"the bad end passed {len(bad)} times of {len(bad)}, {GOOD_TODAY}"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if least_count >= RUNS_MOST:
            bad_rate, good_rate = (f"{runs.count(0.0)} of {len(runs)}" for runs in (bad, good))
            return SearchEnd("inconclusive", f"the bad end fails {bad_rate} times, the good one {good_rate}")
        end, why = high, "end: it passed so far, does it fail at times?"
        if not (all(good) and all(bad)):
            end = min((high, low), key=self.count_at)
            why = "end: it does not always fail, how often does it?"
        return self.request(end, FIRST_RUNS + self.count_at(end) // 8, why)

    def _fit(self, low: int, high: int, *, strict: bool) -> LevelsFit:
        """Fit both rates and the gap of the step in turns; fixed rates while each commit's runs agree. `strict`
        has no effect."""
        positions = [p for p, runs in sorted(self.values_at.items()) if runs and low <= p <= high]
        failed_counts = [self.values_at[position].count(0.0) for position in positions]
        passed_counts = [self.values_at[position].count(1.0) for position in positions]
        best_gap, scores, good_rate, bad_rate = 0, [0.0], CONSISTENT_RATE, 1 - CONSISTENT_RATE
        for turn in range(3):  # Iterate: rates and best gap depend on each other.
            if not self.is_consistent(low, high):
                good_end = bad_start = best_gap + 1
                if turn == 0:  # Take the rates from the two ends alone.
                    good_end, bad_start = 1, len(positions) - 1
                failures, passes = sum(failed_counts[:good_end]), sum(passed_counts[:good_end])
                good_rate = (failures + 0.5) / (failures + passes + 10.5)
                failures, passes = sum(failed_counts[bad_start:]), sum(passed_counts[bad_start:])
                bad_rate = max((failures + 1) / (failures + passes + 2), good_rate + 0.01)
            failed_odds, passed_odds = math.log(bad_rate / good_rate), math.log((1 - bad_rate) / (1 - good_rate))
            counts = zip(failed_counts, passed_counts, strict=True)
            votes = [failures * failed_odds + passes * passed_odds for failures, passes in counts]
            """Log odds of each commit that it is bad."""
            scores = list(accumulate(-vote for vote in votes))[:-1]  # All before a gap are good.
            best_gap = max(range(len(scores)), key=scores.__getitem__)
        return LevelsFit(positions, scores, good_rate, bad_rate)

    def next_count(self, low: int, high: int, position: int, *, strict: bool) -> int:
        """Runs to add to a commit: two at first; for intermittent failures as many as probably show
        one. 0 if more would not decide. `strict` has no effect."""
        count = self.count_at(position)
        if self.is_consistent(low, high):
            return FIRST_RUNS if count == 0 else 1
        runs_to_one_failure = math.ceil(1 / max(self.fit(low, high, strict=strict).bad_level, LEAST_RATE))
        return 0 if count >= RUNS_MOST else min(max(FIRST_RUNS, runs_to_one_failure, count // 4), 16)

    def make_claim(self, low: int, high: int, number: int) -> Claim:
        """The claim that the culprit fails more often than its parent, at the observed rates."""
        fit = self.fit(low, high, strict=True)
        return Claim(number=number, rates=(fit.bad_level, fit.good_level))

    def judge_confirmation(self, confirmation: Confirmation) -> tuple[ConfirmationState, float]:
        """State of a confirmation so far, and its e-value; it fails if refuted, or after too many runs."""
        culprit = confirmation.values_at[confirmation.suspect]
        parent = confirmation.values_at[confirmation.parent]
        evidence = runs_evidence(culprit, parent, confirmation.claim.rates)
        if evidence >= CONFIRMING:
            return "confirmed", evidence
        has_failed = evidence <= 1 / REJECTING or len(culprit) + len(parent) >= RUNS_MOST
        return ("failed" if has_failed else "open"), evidence

    def request_confirmation(self, confirmation: Confirmation) -> ProbeRequest:
        """A request for four more runs of suspect or parent, whichever has fewer."""
        problem, sides = self.problem, (confirmation.suspect, confirmation.parent)
        suspect, parent = map(problem.short_hash, sides)
        why = f"confirm: does {suspect} fail more often than {parent}?"
        by_count = sorted(sides, key=lambda side: len(confirmation.values_at[side]))
        commit, against = map(problem.commit_at, by_count)
        return ProbeRequest(commit, 4, why, against, confirmation.claim)

    def confirmed_step(self, low: int, high: int, confirmation: Confirmation) -> tuple[float, bool]:
        """Failure rate of the culprit less its parent's; no part of the step remains (False)."""
        values_at = confirmation.values_at
        return fmean(values_at[confirmation.parent]) - fmean(values_at[confirmation.suspect]), False

    def describe_step(self, step: float) -> str:
        """`it fails where its parent passes`, or how much more often it fails."""
        if step >= 0.995:
            return "it fails where its parent passes"
        return f"it fails in {round(100 * step)} of 100 runs more than its parent"


def runs_evidence(culprit: Sequence[float], parent: Sequence[float], rates: tuple[float, float]) -> float:
    """Evidence that the culprit fails more often: an e-value of blocks, each with one run of both. `culprit`,
    `parent`: their runs, 1 for passed. `rates`: failure rates a of culprit and b of parent, set before the first
    run. With c = (a + b) / 2 a block's evidence is P_a(x) P_b(y) / (P_c(x) P_c(y)), at most 1 in the mean for any
    common rate (Turner, Ly and Grünwald 2024, "Generic e-variables for exact sequential k-sample tests")."""
    culprit_rate, parent_rate = (min(max(rate, LEAST_RATE), 1 - LEAST_RATE) for rate in rates)
    common_rate = (culprit_rate + parent_rate) / 2

    def likelihood(passed: float, failure_rate: float) -> float:
        return 1 - failure_rate if passed else failure_rate

    evidence = 1.0
    for x, y in zip(culprit, parent, strict=False):
        claimed = likelihood(x, culprit_rate) * likelihood(y, parent_rate)
        evidence *= claimed / (likelihood(x, common_rate) * likelihood(y, common_rate))
        if evidence >= CONFIRMING:  # Later runs do not take it back.
            break
    return evidence


UNLIKELY, DECISIVE = 0.05, 0.004
"""Probability of the other side below which the search moves past a commit; below which it is decided."""
REJECTED_FACTOR = 0.01
"""Factor on a suspect's odds after a failed confirmation."""
SUSPECTS_MOST = 3
"""Rejected suspects after which the search gives up."""
FEW_NEIGHBOURS, MANY_NEIGHBOURS = 8, 14
"""Builds that estimate the noise between builds; if this noise is probably small."""
WIDEST_RANGE = 16
"""A range of more commits, or of more than a quarter of all, is no answer; five always are."""
LOST_MOST = 3
"""Consecutive probes without a result, after which the search gives up."""
OBSERVED_MOST = 3000
"""Observations after which the search gives up."""

Evidence = Pairs | Runs


def next_move(problem: SearchProblem, probes: Sequence[Probe]) -> ProbeRequest | SearchEnd:
    """The next request, or the result of the search, from the probes so far."""
    evidence = Pairs(problem, probes) if problem.metric == "latency" else Runs(problem, probes)
    if problem.last_position == 0:
        return SearchEnd("no_regression", "not in the code: both ends are the same")
    for end, position in (("good", 0), ("bad", problem.last_position)):
        if position in evidence.untestable_reasons:
            reason = evidence.untestable_reasons[position]
            return SearchEnd("inconclusive", f"the {end} end cannot be tested: {reason}")
    move = _search_range(evidence, 0, problem.last_position)
    if isinstance(move, SearchEnd):
        return _conclude(evidence, move)
    if len(evidence.lost_reasons) >= LOST_MOST:
        why = f"{len(evidence.lost_reasons)} tries in a row were lost: {evidence.lost_reasons[-1]}"
        return SearchEnd("inconclusive", why)
    if evidence.total_count >= OBSERVED_MOST:
        return SearchEnd("inconclusive", f"no answer after {evidence.total_count} observations")
    return move


def _search_range(evidence: Evidence, low: int, high: int) -> ProbeRequest | SearchEnd:
    """The next request between two positions, or the result for this range. In order: do the ends differ, are
    there two steps between them, is a suspect to be confirmed, and else which commit it is."""
    problem = evidence.problem
    move = evidence.compare_ends(low, high)
    if move is not None:  # None: the ends differ.
        return move
    middle = evidence.find_middle_level(low, high) if isinstance(evidence, Pairs) else None
    if middle is not None:
        return _search_parts(evidence, [(low, middle), (middle, high)], SearchEnd("inconclusive", ""))
    rejected = list[Confirmation]()
    for confirmation in evidence.confirmations.values():
        suspect, parent = confirmation.suspect, confirmation.parent
        if parent < low or suspect > high:
            continue
        state, confirming_e_value = evidence.judge_confirmation(confirmation)
        is_testable = evidence.untestable_reasons.keys().isdisjoint((suspect, parent))
        if state == "open" and is_testable:
            return evidence.request_confirmation(confirmation)
        if state == "confirmed":
            step, remains = evidence.confirmed_step(low, high, confirmation)
            run = problem.first_commits[parent + 1], problem.first_commits[suspect]
            culprit = Culprit(*run, evidence=confirming_e_value, step=step)
            probabilities = tuple(_step_probabilities(evidence, low, high, (), strict=False))
            end = SearchEnd("culprit", "", probabilities, (culprit,))
            return _search_parts(evidence, [(low, parent), (suspect, high)], end) if remains else end
        rejected.append(confirmation)
    if len(rejected) >= SUSPECTS_MOST:
        last_suspect = problem.short_hash(rejected[-1].suspect)
        why = f"{len(rejected)} suspects were not confirmed, the last one {last_suspect}"
        return SearchEnd("inconclusive", why)
    return _narrow_down(evidence, low, high, rejected)


def _search_parts(
    evidence: Evidence, parts: Sequence[tuple[int, int]], end: SearchEnd
) -> ProbeRequest | SearchEnd:
    """Search parts of a range in order: the next request, or the range's result, `end` with the culprits of its
    parts. `end`: the culprit that was confirmed between the parts, if any."""
    for low, high in parts:
        if low == high:
            continue
        move = _search_range(evidence, low, high)
        if isinstance(move, ProbeRequest):
            return move
        probabilities = end.probabilities
        if move.confirmed:
            probabilities = tuple(map(max, end.probabilities or move.probabilities, move.probabilities))
        culprits = sorted(end.confirmed + move.confirmed, key=lambda culprit: culprit.first)
        # The first part with a reason tells why, if no part has a culprit.
        end = end if end.why else move
        end = replace(end, probabilities=probabilities, confirmed=tuple(culprits))
    return end


def _narrow_down(
    evidence: Evidence, low: int, high: int, rejected: Sequence[Confirmation]
) -> ProbeRequest | SearchEnd:
    """Search between two ends that differ. Asks for observations until each commit is good or bad: first with
    little noise between builds, then (`strict`) with as much as the observed builds allow. Then for builds beside
    the step, if noise may explain it; last for a confirmation. `rejected`: failed confirmations in this range."""
    problem, untestable = evidence.problem, evidence.untestable_reasons
    testable = [position for position in range(low, high + 1) if position not in untestable]
    observed = [position for position in testable if evidence.count_at(position) or position in (low, high)]
    good, bad = low, high
    """The latest position that is good, and the earliest that is bad, as far as decided."""
    probabilities, p_bad, is_one_left_if_quiet = list[float](), list[float](), False
    for doubt, strict in ((UNLIKELY, False), (DECISIVE, True)):
        # In the second turn: whether the first left one commit, with little noise between builds.
        is_one_left_if_quiet = testable.index(bad) - testable.index(good) == 1
        probabilities = _step_probabilities(evidence, low, high, rejected, strict=strict)
        p_bad = list(accumulate(probabilities))
        """Probability of each position that it is bad: that the step is at it or before it."""
        good = max(position for position in observed if p_bad[position] <= doubt or position == low)
        after_good = [position for position in observed if position > good]
        bad = min((position for position in after_good if p_bad[position] >= 1 - doubt), default=high)
        undecided = [position for position in observed if good < position < bad]
        for position in sorted(undecided, key=lambda position: abs(p_bad[position] - 0.5)):
            if count := evidence.next_count(low, high, position, strict=strict):
                why = f"again: {p_bad[position]:.0%} that it regressed"
                return evidence.request(position, count, why)
        if doubt == UNLIKELY:
            unobserved = _find_unobserved(evidence, good, bad, p_bad)
            if unobserved is not None:
                count = max(evidence.next_count(low, high, unobserved, strict=strict), 1)
                why = f"probe: {p_bad[unobserved]:.0%} that it regressed"
                return evidence.request(unobserved, count, why)
    is_one_left = testable.index(bad) - testable.index(good) == 1
    # Only times have noise between builds: code layout does not make builds fail.
    least_step = evidence.find_least_step(low, high, good, bad) if isinstance(evidence, Pairs) else 0.0
    fit = evidence.fit(low, high, strict=True)
    if not (is_one_left and fit.step >= least_step):
        parent, suspect = max(pairwise(testable), key=lambda gap: p_bad[gap[1]] - p_bad[gap[0]])
        builds = MANY_NEIGHBOURS if is_one_left_if_quiet else FEW_NEIGHBOURS
        if isinstance(evidence, Pairs):
            request = _request_neighbour(evidence, testable, parent, suspect, builds)
            if request is not None:
                return request
        place = f"likeliest at {problem.short_hash(suspect)} ({p_bad[suspect] - p_bad[parent]:.0%})"
        if fit.step < least_step:
            if len(testable) == 2:  # It can be nowhere else.
                place = f"{problem.short_hash(suspect)} is the only other build"
            noise = f"builds of one source differ by up to {fit.noise:.1%} on their own"
            why = f"a step of {math.expm1(fit.step):+.1%} is too small to blame a commit: {noise}, so it takes "
            why += f"{math.expm1(least_step):+.1%}; {place}"
            return SearchEnd("inconclusive", why, tuple(probabilities))
        if not is_one_left and bad - good > min(max((high - low) // 4, 5), WIDEST_RANGE):
            why = f"{bad - good} builds are left that the noise between builds does not tell apart; {place}"
            return SearchEnd("inconclusive", why, tuple(probabilities))
    if isinstance(evidence, Runs) and evidence.is_consistent(0, problem.last_position):
        for position in (good, bad):  # A few more runs of both, instead of a confirmation.
            if (missing_count := CONSISTENT_RUNS - evidence.count_at(position)) > 0:
                return evidence.request(position, missing_count, "does it always do the same?")
        run = problem.first_commits[good + 1], problem.first_commits[bad]
        culprit = Culprit(*run, evidence=1 / DECISIVE, step=1.0)  # From passing to failing.
        return SearchEnd("culprit", "", tuple(probabilities), (culprit,))
    claim = evidence.make_claim(low, high, number=1 + len(rejected))
    return evidence.request_confirmation(Confirmation(bad, good, claim))


def _find_unobserved(evidence: Evidence, good: int, bad: int, p_bad: Sequence[float]) -> int | None:
    """The unobserved position between `good` and `bad` whose probability to be bad (`p_bad`) is nearest to 1/2;
    None without one. Untestable commits cluster: with 2, 3, 4 of them, if possible 3, 9, 27 positions away."""
    untestable = [position for position in evidence.untestable_reasons if good < position < bad]
    distances = dict[int, int]()
    for position in range(good + 1, bad):
        if position not in untestable and not evidence.count_at(position):
            distances[position] = min((abs(position - other) for other in untestable), default=1)
    if not distances:
        return None
    least_distance = min(3 ** max(len(untestable) - 1, 0), max(distances.values()))
    candidates = [position for position, distance in distances.items() if distance >= least_distance]
    return min(candidates, key=lambda position: (abs(p_bad[position] - 0.5), position))


def _request_neighbour(
    evidence: Pairs, testable: Sequence[int], parent: int, suspect: int, most_builds: int
) -> ProbeRequest | None:
    """A request for a build beside the step, which shows how builds differ by chance: the nearest unobserved one
    on the side with fewer observed ones; with `MANY_NEIGHBOURS` then the least observed one. None: enough."""
    count, most_count = evidence.plan_neighbours(testable[0], testable[-1])
    why = "neighbour: how far do builds differ on their own?"
    observed = [position for position in testable if evidence.count_at(position) or position == 0]
    sides = list[tuple[int, int]]()
    """Number of observed builds of a side, and its unobserved one nearest to the step."""
    before = [position for position in reversed(testable) if position <= parent]
    after = [position for position in testable if position >= suspect]
    for side in (before, after):
        if unobserved := [position for position in side if position not in observed]:
            sides.append((len(side) - len(unobserved), unobserved[0]))
    if len(observed) < most_builds and sides:
        _, position = min(sides, key=lambda side: side[0])
        return evidence.request(position, count, why)
    least_observed = min(observed[1:], key=evidence.count_at)  # Without the good end.
    if most_builds == MANY_NEIGHBOURS and evidence.count_at(least_observed) < most_count:
        return evidence.request(least_observed, count, why)
    return None


def _step_probabilities(
    evidence: Evidence, low: int, high: int, rejected: Sequence[Confirmation], *, strict: bool
) -> list[float]:
    """Probability of each position of the history that it makes the step; 0 outside the range.
    Failed confirmations (`rejected`) reduce it."""
    fit = evidence.fit(low, high, strict=strict)
    best = max(fit.scores)
    weights = [0.0] * (evidence.problem.last_position + 1)
    for (start, end), score in zip(pairwise(fit.positions), fit.scores, strict=True):
        weight = math.exp(max(score - best, -700.0))  # Below -700, exp underflows.
        weights[start + 1 : end + 1] = [weight] * (end - start)
    for confirmation in rejected:
        for position in range(confirmation.parent + 1, confirmation.suspect + 1):
            weights[position] *= REJECTED_FACTOR
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _conclude(evidence: Evidence, end: SearchEnd) -> SearchEnd:
    """The result of a search, with its outcome and a sentence on each confirmed culprit."""
    problem, sentences = evidence.problem, list[str]()
    for culprit in end.confirmed:
        size = f"{evidence.describe_step(culprit.step)}, evidence {culprit.evidence:,.0f} to 1"
        first, last = (problem.commits[index][:12] for index in (culprit.first, culprit.last))
        if culprit.first == culprit.last:
            subject = "the checkout with its uncommitted changes" if first == UNCOMMITTED else f"commit {first}"
            sentences.append(f"{subject}: {size}")
            continue
        positions = range(problem.positions[culprit.first], problem.positions[culprit.last])
        if evidence.untestable_reasons.keys().isdisjoint(positions):
            size += "; builds may differ on their own, so that no single one stands out"
        sentences.append(f"one of commits {first} to {last}: {size}")
    if not sentences:
        return end
    outcome: Literal["several", "range", "culprit"] = "culprit" if end.culprits else "range"
    return replace(end, outcome="several" if len(end.confirmed) > 1 else outcome, why="; ".join(sentences))
