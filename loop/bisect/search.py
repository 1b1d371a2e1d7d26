"""Which commit caused the regression: what to observe next, or the answer. Pure: measures nothing.

The next request depends on the probes alone, so an interrupted search continues from saved probes.
A *position* counts the different builds along the history: 0 is the good end.

1. Both ends are observed until they differ.
2. Each observed build votes by its log odds to be bad. The score of a place of the step says how
   well it explains all votes. Places within `DECISIVE` of the best are in question: their builds
   are observed until their sides are decided, then the middle one of those that were not observed.
3. Further builds show how far builds differ by chance. Only a clearly larger step blames a commit.
4. Fresh observations of culprit and parent confirm it. Else: more evidence, up to three suspects.
5. A build that is surely neither good nor bad is between two steps: both sides are searched.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import fmean, median, stdev
from typing import Literal

from loop.base.stats import winsorise
from loop.model.bisect import UNCOMMITTED, Claim, Metric, Probe
from loop.report.format import significant, speedup_text
from loop.timing.verdicts import MARGIN, e_value


@dataclass
class Confirmation:
    """A suspect and its parent, and fresh observations of both, which test a claim."""

    suspect: int  # Position of the suspect, after `parent`.
    parent: int
    claim: Claim
    values_at: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Observed position to its values, as in `Observations.values_at`."""


@dataclass(frozen=True)
class SearchProblem:
    """Commits from the good end to the bad. Neighbours of the same program share a *position*."""

    commits: tuple[str, ...]  # Their hashes.
    programs: tuple[str, ...]  # A name of the program of each commit: equal names, equal programs.
    metric: Metric = "latency"

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """Position of each commit: 0 for the good end, one more at each new program. Commits up to
        the last one of a program share its position: another program between was taken back."""
        last_index_of = {program: index for index, program in enumerate(self.programs)}
        positions, position, shared_until = list[int](), 0, last_index_of[self.programs[0]]
        for index, program in enumerate(self.programs):
            if index > shared_until:
                position, shared_until = position + 1, last_index_of[program]
            positions.append(position)
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
        last = len(self.positions) - 1
        return last if position == self.last_position else self.first_commits[position]

    def short_hash(self, position: int) -> str:
        """Short hash of a position's commit, for messages."""
        return self.commits[self.commit_at(position)][:12]


@dataclass(frozen=True)
class ProbeRequest:
    """A request: build this commit if needed, and observe it `count` times."""

    commit: int  # Index into the commits of the problem.
    count: int  # Requested observations; fewer may result.
    why: str  # The reason, shown in the table of probes.
    against: int = 0  # The commit it is timed with: 0, the good end, except in a confirmation.
    claim: Claim | None = None  # For a confirmation: its observations are not used in the search.


@dataclass(frozen=True)
class Culprit:
    """A culprit, or a run of commits that contains one."""

    first: int  # Index of the culprit, or of the first commit of the run.
    last: int  # Index of the culprit, or of the last commit of the run.
    evidence: float  # e-value of the confirmation.
    step: float  # Latency: log(its time / its parent's). Correctness: rise of the failure rate.


@dataclass(frozen=True)
class SearchEnd:
    """The result of a search."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    why: str
    confirmed: tuple[Culprit, ...] = ()
    swapped: bool = False  # Whether the regression is at the good end.

    @property
    def culprits(self) -> tuple[int, ...]:
        """Indices of the confirmed culprits that are a single commit."""
        return tuple(culprit.first for culprit in self.confirmed if culprit.first == culprit.last)

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last index of the first culprit that is several commits; None without such."""
        runs = ((culprit.first, culprit.last) for culprit in self.confirmed)
        return next((run for run in runs if run[0] != run[1]), None)


DECISIVE = math.log(249)  # Log odds that decide a build's side, and rule out a place of the step.
CONFIRMING, REJECTING = 100.0, 20.0  # E-value that confirms a culprit; e-value that rejects it.


class Observations:
    """The probes so far, by position, for `Pairs` and `Runs`. `low` and `high`: ends of a range."""

    def __init__(self, problem: SearchProblem, probes: Sequence[Probe]) -> None:
        """Sort values by position, without programs that were taken back. A measured probe without
        a finite value counts as lost. Ratios to other commits than the good end only confirm."""
        self.problem = problem
        self.values_at: dict[int, list[float]] = {}
        """Position to log(time / the good end's), or 1 right, 0 wrong. Without confirmations."""
        self.confirmations: dict[tuple[int, int, int], Confirmation] = {}
        """Positions of suspect and parent, and number of the claim, to the confirmation."""
        self.untestable_reasons: dict[int, str] = {}  # Of positions that cannot be built or tried.
        self.built_positions: set[int] = set()
        self.lost_reasons: list[str] = []  # Reasons of the latest consecutive lost probes.
        self.total_count = 0  # Of observed values, those of confirmations included.
        program_of = dict(zip(problem.commits, problem.programs, strict=True))
        first_programs = [problem.programs[index] for index in problem.first_commits]
        position_of = {program: position for position, program in enumerate(first_programs)}
        for probe in probes:
            values = [value for value in probe.values if math.isfinite(value)]
            if probe.status == "lost" or (probe.status == "measured" and not values):
                self.lost_reasons.append(probe.reason or "no value came")
                continue
            self.lost_reasons = []
            position = position_of.get(program_of[probe.commit])
            reference = position_of.get(program_of[probe.against])
            if position is None or reference is None:
                continue
            if probe.status == "broken":
                self.untestable_reasons[position] = probe.reason
                continue
            self.built_positions |= {position, reference}
            # A confirmation may observe either side of the step; of one program it proves nothing.
            if probe.claim is not None and position != reference:
                suspect, parent = max(position, reference), min(position, reference)
                confirmation = Confirmation(suspect, parent, probe.claim)
                key = suspect, parent, probe.claim.number
                self.confirmations.setdefault(key, confirmation).values_at[position] += values
                self.total_count += len(values)
            elif problem.metric == "correctness" or reference == 0:
                self.values_at.setdefault(position, []).extend(values)
                self.total_count += len(values)

    def request(self, position: int, count: int, why: str) -> ProbeRequest:
        """A request to observe a position `count` times. `why`: reason, for the table of probes."""
        return ProbeRequest(self.problem.commit_at(position), count, why)

    def count_at(self, position: int) -> int:
        """Number of the search's observations at a position, without confirmations."""
        return len(self.values_at.get(position, ()))


def best_gap(votes: Sequence[float]) -> tuple[int, list[float]]:
    """The likeliest place of the step, and the score of each place. `votes`: each observed build's
    log odds to be bad, in order. Place n is after build n: all votes up to it are for good."""
    scores = list(accumulate(-vote for vote in votes))[:-1]
    return max(range(len(scores)), key=scores.__getitem__), scores


TYPICAL_NOISE, MOST_NOISE = 0.005, 0.025
"""Noise between builds (standard deviation of the log time): the least that a search assumes; and
the most that it fears before it blames a commit, until the observed builds rule it out."""
RULED_OUT_Z = -2.8  # Normal quantile: noise is ruled out at a chance of 1 in 400.
LEAST_BUILDS, ENOUGH_BUILDS = 7, 11  # Fewest that show noise; after which noise ends the search.
LEAST_STEP = 3.5  # Least step to blame a commit or range, in multiples of the noise between builds.
OUTLIER_DEVIATIONS = 4.5  # A pair this many median deviations beyond both levels is clipped.
ENDS_FIRST_PAIRS, ENDS_LEAST_PAIRS, ENDS_MOST_PAIRS = 3, 8, 200
"""Pairs of the ends before a first look; before `no_regression`; before `inconclusive`."""
DIFFERENCE_Z, NO_DIFFERENCE_Z = 4.5, 2.6  # Standard errors: ends differ; a difference is ruled out.
LEVELS_APART, LEVELS_APART_Z = 0.065, 2.8  # Of a third level: log ratio, standard errors of pairs.
MOST_NEEDED = 8  # After this many times the pairs that a vote needs, more would not decide it.
BATCH_MOST = 32  # Most pairs in one request.
NEIGHBOURS, NEIGHBOUR_PRECISION = 13, 9.0  # Builds that show noise; step over a build's error.
LEAST_SHARE = 0.15  # Least share of a merge's step that a commit of its branches explains.
CONFIRM_ABOVE, REJECT_BELOW = 0.3, 0.5  # Shares of the step that confirm and reject a culprit.
FIRST_PAIRS, MOST_PAIRS = 4, 60  # Of a confirmation: before a first look; at most, if noise allows.
FAST_TODAY = "the bad end is as fast today: the machine or its environment may have been slow"


@dataclass(frozen=True)
class TimedBuild:
    """One build: its mean log ratio to the good end, and the variance of this mean."""

    position: int
    mean: float
    variance: float


@dataclass(frozen=True)
class LevelsFit:
    """Two levels, good and bad, fitted to the builds of a range."""

    step: float  # Log ratio of the bad level to the good one, above 0.
    noise: float  # Standard deviation of builds on one level, as estimated.
    possible_noise: float  # The most noise that the builds do not rule out.
    votes: dict[int, float]  # Position to log odds to be bad. An outlier votes like two builds.


def estimate_noise(residuals: Sequence[tuple[float, float]], quantile: float) -> float:
    """The noise between builds: a standard deviation, at most 1. `residuals`: each build's squared
    distance to its level, and the variance of its mean. `quantile` (of the standard normal): 0 for
    the likely noise; below 0 for an upper bound. Too few builds: 0, and infinity as the bound."""
    if len(residuals) < LEAST_BUILDS:
        return math.inf if quantile < 0 else 0.0
    # The quantile of chi^2, after Wilson and Hilferty (1931). Two levels were fitted to the builds.
    freedom = len(residuals) - 2
    part = 2 / (9 * freedom)
    expected = freedom * max(1 - part + quantile * math.sqrt(part), 0.01) ** 3
    # Solve sum of residual^2 / (noise^2 + variance) = expected. More noise makes the sum smaller.
    low, high, noise = 0.0, 1.0, 0.0  # Begin without noise, which may explain the residuals.
    for _ in range(31):
        terms = (square / (noise**2 + variance + 1e-18) for square, variance in residuals)
        if math.fsum(terms) > expected:
            low = noise
        else:
            high = noise
        noise = (low + high) / 2
    return high


class Pairs(Observations):
    """Log ratios of pairs at each commit: above 0 the commit is slower than the good end."""

    @functools.cached_property
    def clipped(self) -> dict[int, list[float]]:
        """Position to its log ratios. Unless they are few, outliers are clipped near levels."""
        observed = {position: values for position, values in self.values_at.items() if values}
        deviations = list[float]()
        for values in observed.values():
            centre = median(values)
            deviations += [abs(value - centre) for value in values if len(values) > 2]
        if len(deviations) < 6:  # Too few to tell what an outlier is.
            return observed
        margin = OUTLIER_DEVIATIONS * max(median(deviations), 1e-4)
        bad_level = median(observed.get(self.problem.last_position, [0.0]))
        lowest, highest = min(0.0, bad_level) - margin, max(0.0, bad_level) + margin
        for position, values in observed.items():
            observed[position] = [min(max(value, lowest), highest) for value in values]
        return observed

    @functools.cached_property
    def pair_variance(self) -> float:
        """Variance of one pair about its build's mean, enlarged if few pairs estimate it."""
        builds = [values for values in self.clipped.values() if len(values) > 1]
        freedom = sum(len(values) - 1 for values in builds)
        squares = math.fsum((value - fmean(values)) ** 2 for values in builds for value in values)
        return max(squares / freedom * (1 + 6 / freedom) if freedom else 0.0, 1e-12)

    def timed_builds(self, low: int, high: int) -> list[TimedBuild]:
        """The observed builds of a range, in order. Pairs refer to the good end: its mean is 0."""
        builds = [TimedBuild(0, 0.0, 0.0)] if low == 0 else []
        for position, values in sorted(self.clipped.items()):
            if low <= position <= high and position > 0:
                builds.append(TimedBuild(position, fmean(values), self.pair_variance / len(values)))
        return builds

    def fit(self, low: int, high: int) -> LevelsFit:
        """Fit levels, noise and the place of the step in turns, from the two ends on."""
        builds = self.timed_builds(low, high)
        # Where pairs scatter little, builds do.
        most_noise = min(MOST_NOISE, 4 * math.sqrt(self.pair_variance))
        noise, sides = TYPICAL_NOISE, (builds[:1], builds[-1:])
        for _ in range(4):
            levels, residuals, middle_variance = list[float](), list[tuple[float, float]](), 0.0
            for side in sides:
                weights = [1 / (noise**2 + build.variance) for build in side]
                terms = [weight * build.mean for weight, build in zip(weights, side, strict=True)]
                levels.append(math.fsum(terms) / sum(weights))
                middle_variance += 0.25 / sum(weights)
                residuals += [((build.mean - levels[-1]) ** 2, build.variance) for build in side]
            noise = max(estimate_noise(residuals, 0.0), min(TYPICAL_NOISE, most_noise))
            possible = max(min(estimate_noise(residuals, RULED_OUT_Z), most_noise), noise)
            step, votes = max(levels[1] - levels[0], 1e-9), dict[int, float]()
            for build in builds:
                offset = min(max(build.mean - fmean(levels), -step), step)
                votes[build.position] = (
                    offset * step / (noise**2 + middle_variance + build.variance)
                )
            place, _ = best_gap([*votes.values()])
            sides = builds[: place + 1], builds[place + 1 :]
        return LevelsFit(step, noise, possible, votes)

    def next_count(self, low: int, high: int, position: int) -> int:
        """Pairs to add to a build whose side is not decided; 0 if more would not decide it."""
        count, fit = self.count_at(position), self.fit(low, high)
        # So many pairs leave half of the doubt.
        needed = 4 * DECISIVE * self.pair_variance / fit.step**2
        # From 4 * variance / noise^2 on, pairs add little to the noise between builds.
        if count >= min(MOST_NEEDED * needed, 4 * self.pair_variance / fit.noise**2) + 2:
            return 0
        return min(max(1, math.ceil(needed / 3), count // 4), BATCH_MOST)

    def request_neighbour(self, testable: Sequence[int]) -> ProbeRequest | None:
        """A request that shows how builds differ by chance: the build farthest from those observed,
        as neighbours may be alike; then more pairs. None: enough. `testable`: the positions."""
        low, step = testable[0], self.fit(testable[0], testable[-1]).step
        wanted = math.ceil(NEIGHBOUR_PRECISION**2 * self.pair_variance / step**2)
        observed = [position for position in testable if self.count_at(position)]
        unobserved = [position for position in testable[1:] if position not in observed]
        if unobserved and len(observed) < NEIGHBOURS:
            apart = {p: min(abs(p - other) for other in (low, *observed)) for p in unobserved}
            observed = [max(unobserved, key=apart.__getitem__)]
        for position in observed:
            if (missing := min(wanted - self.count_at(position), BATCH_MOST)) > 0:
                return self.request(position, missing, "neighbour: how do builds differ?")
        return None

    def compare_ends(self) -> ProbeRequest | SearchEnd | None:
        """The next request for an end; None once the ends differ; a result if they do not."""
        bad_end = self.problem.last_position
        observed = [position for position in self.clipped if position > 0]
        if len(observed) > 1 and observed[0] == bad_end:  # This search went on: they differed.
            return None
        count = self.count_at(bad_end)
        if count < ENDS_FIRST_PAIRS:
            why = "end: does the difference show today?"
            return self.request(bad_end, ENDS_FIRST_PAIRS - count, why)
        build = self.timed_builds(bad_end, bad_end)[0]
        step, error = build.mean, math.sqrt(build.variance)
        if step >= DIFFERENCE_Z * error:
            return None
        if step <= -DIFFERENCE_Z * error and -step > 4 * TYPICAL_NOISE:
            why = f"the good end takes {speedup_text(math.exp(-step), 3)} the time of the bad one"
            return SearchEnd("no_regression", why, swapped=True)
        largest_step = step + NO_DIFFERENCE_Z * error
        if count >= ENDS_LEAST_PAIRS and largest_step < math.log1p(MARGIN):
            size = f"{math.expm1(step):+.2%} after {count} observations, surely below {MARGIN:.1%}"
            return SearchEnd("no_regression", f"not reproduced: {size}: {FAST_TODAY}")
        if count >= ENDS_MOST_PAIRS:
            scatter = f"pairs scatter by {math.sqrt(self.pair_variance):.1%}"
            why = f"too noisy: {scatter}, {largest_step:.1%} may be hidden"
            return SearchEnd("inconclusive", why)
        why = f"end: the difference is {step / error:.1f} times its standard error so far"
        return self.request(bad_end, 1 + count // 8, why)

    def find_middle_level(self, low: int, high: int) -> int | None:
        """The position of most pairs that is surely between both levels: two steps. Or None."""
        first, *inside, last = self.timed_builds(low, high)
        middle = list[int]()
        for build in inside:
            are_apart = list[bool]()  # Good end and build; build and bad end.
            for lower, upper in ((first, build), (build, last)):
                error = math.sqrt(lower.variance + upper.variance)
                least_step = math.hypot(LEVELS_APART, LEVELS_APART_Z * error)
                are_apart.append(upper.mean - lower.mean >= least_step)
            middle += [build.position] if all(are_apart) else []
        return max(middle, key=self.count_at, default=None)

    def confirm(self, confirmation: Confirmation) -> ProbeRequest | Culprit | None:
        """Is the suspect slower than its parent by `CONFIRM_ABOVE` of `claim.step`, the step of
        its range? A Culprit if so; None if refuted, or open after many pairs; else a request."""
        suspect, parent, claim = confirmation.suspect, confirmation.parent, confirmation.claim
        problem, count = self.problem, len(confirmation.values_at[suspect])
        if count >= FIRST_PAIRS:
            clipped = winsorise(confirmation.values_at[suspect])
            prior_variance = min(max(1.0, (claim.step / max(claim.sd, 1e-12)) ** 2), 1e4)
            evidence = e_value(clipped.values, CONFIRM_ABOVE * claim.step, prior_variance)
            if evidence >= CONFIRMING:
                run = problem.first_commits[parent + 1], problem.first_commits[suspect]
                return Culprit(*run, evidence, clipped.mean)
            negated = [-pair for pair in clipped.values]
            evidence_against = e_value(negated, -REJECT_BELOW * claim.step, prior_variance)
            relative_noise = stdev(clipped.values) / max(claim.step, 1e-12)
            many_pairs = math.ceil(40 * relative_noise**2)  # Then the step is 6 standard errors.
            if evidence_against >= REJECTING or count >= max(MOST_PAIRS, many_pairs):
                return None
        names = f"{problem.short_hash(suspect)} slower than {problem.short_hash(parent)}"
        why = f"confirm: is {names} by over {math.expm1(CONFIRM_ABOVE * claim.step):.1%}?"
        commit, against = problem.commit_at(suspect), problem.commit_at(parent)
        return ProbeRequest(commit, max(FIRST_PAIRS - count, 1 + count // 8), why, against, claim)


CONSISTENT_RATE = 0.005  # Rate of failures before the step, and of passes after it, if all agree.
FIRST_RUNS, CONSISTENT_RUNS = 2, 4  # First runs of a commit; failing runs that prove no regression.
PASSES_MOST, RUNS_MOST = 60, 200  # Passes of the bad end that prove no regression; runs to give up.
Rates = tuple[float, float]  # Failure rates of two kinds of commits.
LEAST_RATE = 0.02  # Rates of a confirmation stay at least this far from 0 and 1.
CLAIMED_RATES = (0.5, 0.05)  # Failure rates of bad and good end that the ends are tested for.
GOOD_TODAY = "so it is good today: the machine, the compiler or the inputs may have made it fail"


class Runs(Observations):
    """Runs at each commit; 1 is passed. Fits two rates of failure: before the step and after it."""

    @property
    def is_consistent(self) -> bool:
        """Whether no commit has both failed and passed so far."""
        return all(all(runs) or not any(runs) for runs in self.values_at.values())

    def compare_ends(self) -> ProbeRequest | SearchEnd | None:
        """The next run of an end; None once the bad one surely fails more often; else a result."""
        bad_end = self.problem.last_position
        for end in (bad_end, 0):
            if (missing := FIRST_RUNS - self.count_at(end)) > 0:
                return self.request(end, missing, "end: does it fail, does the good end pass?")
        good, bad = self.values_at[0], self.values_at[bad_end]
        if self.is_consistent:
            differ, are_swapped = all(good) and not any(bad), all(bad) and not any(good)
        else:
            differ = runs_evidence(bad, good, CLAIMED_RATES) >= CONFIRMING
            are_swapped = runs_evidence(good, bad, CLAIMED_RATES) >= CONFIRMING
        if differ:
            return None
        if are_swapped:
            why = "the good end fails and the bad one passes"
            return SearchEnd("no_regression", why, swapped=True)
        least_count = min(len(good), len(bad))
        if least_count >= CONSISTENT_RUNS and not any(good) and not any(bad):
            why = f"the good end fails as well, each of {len(good)} times: it is not good today"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if len(bad) >= PASSES_MOST and all(bad):
            why = f"the bad end passed {len(bad)} times of {len(bad)}, {GOOD_TODAY}"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if least_count >= RUNS_MOST:
            bad_rate, good_rate = (f"{runs.count(0.0)} of {len(runs)}" for runs in (bad, good))
            why = f"the bad end fails {bad_rate} times, the good one {good_rate}"
            return SearchEnd("inconclusive", why)
        end, why = bad_end, "end: it passed so far, does it fail at times?"
        if not (all(good) and all(bad)):
            end = min((bad_end, 0), key=self.count_at)
            why = "end: it does not always fail, how often does it?"
        return self.request(end, FIRST_RUNS + self.count_at(end) // 8, why)

    @functools.cached_property
    def rates(self) -> Rates:
        """Failure rates before and after the step, fitted with its place; fixed if runs agree."""
        if self.is_consistent:
            return CONSISTENT_RATE, 1 - CONSISTENT_RATE
        runs_of_commits = [runs for _, runs in sorted(self.values_at.items())]
        sides = runs_of_commits[:1], runs_of_commits[-1:]
        for _ in range(3):
            (failures, count), (bad_failures, bad_count) = (
                (sum(runs.count(0.0) for runs in side), sum(map(len, side))) for side in sides
            )
            good_rate = (failures + 0.5) / (count + 10.5)
            rates = good_rate, max((bad_failures + 1) / (bad_count + 2), good_rate + 0.01)
            place, _ = best_gap([runs_vote(runs, rates) for runs in runs_of_commits])
            sides = runs_of_commits[: place + 1], runs_of_commits[place + 1 :]
        return rates

    def next_count(self, low: int, high: int, position: int) -> int:
        """Runs to add to a commit: probably enough for a failure. 0 if more would not decide."""
        count = self.count_at(position)
        runs_to_failure = math.ceil(1 / max(self.rates[1], LEAST_RATE))
        return 0 if count >= RUNS_MOST else min(max(FIRST_RUNS, runs_to_failure, count // 4), 16)

    def confirm(self, confirmation: Confirmation) -> ProbeRequest | Culprit | None:
        """The culprit, if it surely fails more often than its parent; None if refuted, or still
        open after too many runs; else a request for four more runs of whichever has fewer."""
        problem, suspect, parent = self.problem, confirmation.suspect, confirmation.parent
        culprit_runs, parent_runs = confirmation.values_at[suspect], confirmation.values_at[parent]
        evidence = runs_evidence(culprit_runs, parent_runs, confirmation.claim.rates)
        if evidence >= CONFIRMING:
            run = problem.first_commits[parent + 1], problem.first_commits[suspect]
            return Culprit(*run, evidence, fmean(parent_runs) - fmean(culprit_runs))
        if evidence <= 1 / REJECTING or len(culprit_runs) + len(parent_runs) >= RUNS_MOST:
            return None
        names = f"{problem.short_hash(suspect)} fail more often than {problem.short_hash(parent)}"
        ends = (suspect, parent) if len(culprit_runs) <= len(parent_runs) else (parent, suspect)
        commit, against = map(problem.commit_at, ends)
        return ProbeRequest(commit, 4, f"confirm: does {names}?", against, confirmation.claim)


def runs_vote(runs: Sequence[float], rates: Rates) -> float:
    """Log odds that a commit with these runs is bad. `rates`: those of good and bad commits."""
    good_rate, bad_rate = rates
    failed_odds = math.log(bad_rate / good_rate)
    passed_odds = math.log((1 - bad_rate) / (1 - good_rate))
    return runs.count(0.0) * failed_odds + runs.count(1.0) * passed_odds


def runs_evidence(culprit: Sequence[float], parent: Sequence[float], rates: Rates) -> float:
    """Evidence that the culprit fails more often: an e-value of blocks, each with one run of both
    (1: passed). `rates`: failure rates a of culprit and b of parent, set before the first run. With
    c = (a + b) / 2 a block has P_a(x) P_b(y) / (P_c(x) P_c(y)), at most 1 in the mean for any rate
    (Turner, Ly and Grünwald 2024, "Generic e-variables for exact sequential k-sample tests")."""
    culprit_rate, parent_rate = (min(max(rate, LEAST_RATE), 1 - LEAST_RATE) for rate in rates)
    common_rate, evidence = (culprit_rate + parent_rate) / 2, 1.0
    for passed, parent_passed in zip(culprit, parent, strict=False):
        for has_passed, rate in ((passed, culprit_rate), (parent_passed, parent_rate)):
            evidence *= (1 - rate) / (1 - common_rate) if has_passed else rate / common_rate
        if evidence >= CONFIRMING:  # Later runs do not take it back.
            break
    return evidence


SUSPECTS_MOST = 3  # Rejected suspects after which the search gives up.
WIDEST_RANGE = 16  # Wider ranges, or of over a quarter of all commits, are no answer; 5 always are.
LOST_MOST = 3  # Consecutive probes without a result, after which the search gives up.
OBSERVED_MOST = 3000  # Observations after which the search gives up.
Evidence = Pairs | Runs


def next_move(problem: SearchProblem, probes: Sequence[Probe]) -> ProbeRequest | SearchEnd:
    """The next request, or the result of the search, from the probes so far."""
    evidence = Pairs(problem, probes) if problem.metric == "latency" else Runs(problem, probes)
    if problem.last_position == 0:
        return SearchEnd("no_regression", "not in the code: both ends are the same program")
    for end, position in (("good", 0), ("bad", problem.last_position)):
        if position in evidence.untestable_reasons:
            reason = evidence.untestable_reasons[position]
            return SearchEnd("inconclusive", f"the {end} end cannot be tested: {reason}")
    move = evidence.compare_ends() or _search_range(evidence, 0, problem.last_position)
    if isinstance(move, SearchEnd):
        return _conclude(evidence, move)
    if len(evidence.lost_reasons) >= LOST_MOST:
        why = f"{len(evidence.lost_reasons)} tries in a row were lost: {evidence.lost_reasons[-1]}"
        return SearchEnd("inconclusive", why)
    if evidence.total_count >= OBSERVED_MOST:
        return SearchEnd("inconclusive", f"no answer after {evidence.total_count} observations")
    return move


def _search_range(evidence: Evidence, low: int, high: int) -> ProbeRequest | SearchEnd:
    """The next request between two positions that differ, or the result for this range. In order:
    are there two steps between them, is a suspect to be confirmed, and else which commit it is."""
    problem = evidence.problem
    middle = evidence.find_middle_level(low, high) if isinstance(evidence, Pairs) else None
    if middle is not None:
        end = SearchEnd("inconclusive", "")
        for part in ((low, middle), (middle, high)):
            move = _search_range(evidence, *part)
            if isinstance(move, ProbeRequest):
                return move
            # The first part with a reason tells why, if no part has a culprit.
            end = replace(end if end.why else move, confirmed=end.confirmed + move.confirmed)
        return end
    rejected = 0
    for confirmation in evidence.confirmations.values():
        suspect, parent = confirmation.suspect, confirmation.parent
        if parent < low or suspect > high:
            continue
        result = evidence.confirm(confirmation)
        if isinstance(result, Culprit):
            return SearchEnd("culprit", "", (result,))
        if result and evidence.untestable_reasons.keys().isdisjoint((suspect, parent)):
            return result
        rejected += 1
        if rejected >= SUSPECTS_MOST:
            why = f"{rejected} suspects were not confirmed, lastly {problem.short_hash(suspect)}"
            return SearchEnd("inconclusive", why)
    return _narrow(evidence, low, high, rejected)


def _narrow(evidence: Evidence, low: int, high: int, rejected: int) -> ProbeRequest | SearchEnd:
    """Search between two ends that differ: asks for observations until each commit is good or bad;
    for further builds, if noise between builds may explain the step; last for a confirmation.
    `rejected`: failed confirmations in this range; each asks for more evidence."""
    problem = evidence.problem
    fit = None  # Only times have noise between builds: code layout does not make builds fail.
    if isinstance(evidence, Pairs):
        fit = evidence.fit(low, high)
        votes = fit.votes
    else:
        observed = {p: runs for p, runs in evidence.values_at.items() if low <= p <= high}
        votes = {place: runs_vote(runs, evidence.rates) for place, runs in observed.items()}
    testable = [p for p in range(low, high + 1) if p not in evidence.untestable_reasons]
    # The latest position that is surely good and the earliest that is surely bad, if only the ends.
    positions = sorted(votes)
    best, scores = best_gap([votes[position] for position in positions])
    least_score = scores[best] - DECISIVE * (1 + rejected)
    in_question = [gap for gap, score in enumerate(scores) if score > least_score]
    good, bad = positions[in_question[0]], positions[in_question[-1] + 1]
    if fit is None or len(votes) < ENOUGH_BUILDS or fit.step >= LEAST_STEP * fit.noise:
        for position in sorted(votes, key=lambda position: abs(votes[position])):
            if good < position < bad and (count := evidence.next_count(low, high, position)):
                return evidence.request(position, count, "again: not decided whether it regressed")
        # The middle unobserved build, 3, 9, 27 away from 2, 3, 4 untestable ones: they cluster.
        untestable = [position for position in evidence.untestable_reasons if good < position < bad]
        distances = dict[int, int]()
        for place in range(good + 1, bad):
            if place not in untestable and not evidence.count_at(place):
                distances[place] = min((abs(place - other) for other in untestable), default=1)
        if distances:
            least = min(3 ** max(len(untestable) - 1, 0), max(distances.values()))
            far = [place for place, distance in distances.items() if distance >= least]
            middle = min(far, key=lambda place: (abs(place - (good + bad) / 2), -place))
            count = max(evidence.next_count(low, high, middle), 1)
            return evidence.request(middle, count, f"probe: {bad - good} builds are in question")
        if isinstance(evidence, Pairs) and fit and fit.step < LEAST_STEP * fit.possible_noise:
            request = evidence.request_neighbour(testable)
            if request is not None:
                return request
    where = f"likeliest after {problem.short_hash(good)}, up to {problem.short_hash(bad)}"
    if fit and fit.step < LEAST_STEP * fit.possible_noise:
        if len(testable) == 2:  # It can be nowhere else.
            where = f"{problem.short_hash(bad)} is the only other build"
        least, noise = math.expm1(LEAST_STEP * fit.possible_noise), fit.possible_noise
        why = f"a step of {math.expm1(fit.step):+.1%} is too small to blame a commit: builds of one"
        why = f"{why} source differ by up to {noise:.1%} on their own, so it takes {least:+.1%}"
        return SearchEnd("inconclusive", f"{why}; {where}")
    suspect_count = sum(good < position <= bad for position in testable)
    if suspect_count > max(5, min((high - low) // 4, WIDEST_RANGE)):
        why = f"the noise between builds does not tell {suspect_count} builds apart; {where}"
        return SearchEnd("inconclusive", why)
    if isinstance(evidence, Pairs):
        step, sd = evidence.fit(low, high).step, math.sqrt(evidence.pair_variance)
        claim = Claim(number=1 + rejected, step=step, sd=sd)
    else:
        claim = Claim(number=1 + rejected, rates=evidence.rates[::-1])
    first_request = evidence.confirm(Confirmation(bad, good, claim))
    assert isinstance(first_request, ProbeRequest)  # Nothing was observed for this claim yet.
    return first_request


def _conclude(evidence: Evidence, end: SearchEnd) -> SearchEnd:
    """The result of a search, with its outcome and a sentence on each confirmed culprit."""
    problem, sentences = evidence.problem, list[str]()
    for culprit in end.confirmed:
        step = culprit.step
        if problem.metric == "correctness":
            size = f"it fails in {round(100 * step)} of 100 runs more than its parent"
            size = "it fails where its parent passes" if step >= 0.995 else size
        elif step < 1:
            size = f"{100 * math.expm1(step):.1f} % slower than its parent"
        else:
            size = f"takes {significant(math.exp(step))} times as long as its parent"
        size += f", evidence {culprit.evidence:,.0f} to 1"
        first, last = (problem.commits[index][:12] for index in (culprit.first, culprit.last))
        if culprit.first == culprit.last:
            checkout = "the checkout with its uncommitted changes"
            subject = checkout if first == UNCOMMITTED else f"commit {first}"
            sentences.append(f"{subject}: {size}")
            continue
        positions = range(problem.positions[culprit.first], problem.positions[culprit.last])
        if evidence.untestable_reasons.keys().isdisjoint(positions):
            size += "; builds may differ on their own, so that no single one stands out"
        sentences.append(f"one of commits {first} to {last}: {size}")
    outcome: Literal["several", "range", "culprit"] = "culprit" if end.culprits else "range"
    outcome = "several" if len(end.confirmed) > 1 else outcome
    return replace(end, outcome=outcome, why="; ".join(sentences)) if sentences else end
