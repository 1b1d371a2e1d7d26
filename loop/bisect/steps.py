"""Where the step is, and whether there is one, whatever builds differ by on their own. Pure.

`change_point` knows the posterior of a step where the noise between builds is known, `build_noise` what that noise
may be. Here the first is averaged over the second. For each noise the case without a step has its likelihood, too:
with W and S of all builds as of one side, f degrees of freedom, and a half-Cauchy prior of the step's size d,

    L_0 = gamma((f + 1) / 2) (pi S)^(-(f + 1) / 2) W^(-1/2)      L_k = gamma(f / 2) pi^(-f / 2) L(k) p(d_k)

The scatter of builds that the same commit may explain then speaks against a step.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from loop.bisect import build_noise
from loop.bisect.change_point import Fit, Unit

RARE = 3e-3
"""Noise between builds that is less probable than this is left out."""
FLOOR = 1e-6
"""Measurements scatter by this at least (sd): numbers that are the same each time are counts of something."""
QUICK = 0.25
"""Probability that builds differ by less than is supposed while a suspect is searched for."""
NOTHING = 0.1
"""Probability that there is no step, before anything is observed: somebody says that there is."""


class Steps:
    """All steps that the builds of some positions allow, good end first."""

    def __init__(self, units: Iterable[Unit], prior: Sequence[float], *, known: bool = False) -> None:
        """`prior`: of a step at each position. `known`: as `Fit` has it."""
        self._units, self._prior, self._known = [unit for unit in units if unit.count], prior, known
        freedom = sum(unit.count - 1 for unit in self._units)
        squares = math.fsum(unit.squares for unit in self._units)
        if squares < FLOOR**2 * freedom:
            squares = FLOOR**2 * freedom
            self._units = [replace(unit, squares=FLOOR**2 * (unit.count - 1)) for unit in self._units]
        self.sd = math.sqrt(squares / freedom) if freedom else 0.0
        """Of one observation about its build's level; 0 where nothing is known of it."""

    @functools.cached_property
    def noises(self) -> tuple[float, ...]:
        """Probability of each noise between builds, of `build_noise.SDS`."""
        if not self.sd:
            return (1.0, *(0.0 for _ in build_noise.SDS[1:]))
        upper = list(accumulate(self._prior))
        return build_noise.shares(self._units, self.sd, upper, known=self._known)

    @functools.cached_property
    def layout_sd(self) -> float:
        """What builds differ by on their own (sd of log latency): the mean of what it may be."""
        return build_noise.typical(self.noises)

    @functools.cached_property
    def likely(self) -> Fit:
        """The steps under the typical noise between builds."""
        return self._fit(self.layout_sd)

    @functools.cached_property
    def quick(self) -> Fit:
        """The steps under the least noise between builds that is not improbable."""
        return self._fit(build_noise.quantile(self.noises, QUICK))

    def _fit(self, tau: float) -> Fit:
        """The steps where builds differ by so much."""
        return Fit(self._units, self._prior, tau**2 / self.sd**2 if self.sd else 0.0, known=self._known)

    @functools.cached_property
    def _fits(self) -> list[tuple[float, Fit]]:
        """The steps under each noise that is not too rare, with its share."""
        pairs = zip(build_noise.SDS, self.noises, strict=True)
        return [(share, self._fit(tau)) for tau, share in pairs if share > RARE]

    @functools.cached_property
    def mass(self) -> list[float]:
        """Probability of each position of the history, if there is a step."""
        shares = [share for share, _ in self._fits]
        columns = zip(*(fit.mass for _, fit in self._fits), strict=True)
        total = [sum(share * value for share, value in zip(shares, column, strict=True)) for column in columns]
        whole = math.fsum(total)
        return [value / whole for value in total]

    @functools.cached_property
    def doubt(self) -> float:
        """Probability that there is no step."""
        return math.fsum(share * self._nothing(fit) for share, fit in self._fits)

    def _nothing(self, fit: Fit) -> float:
        """The same where the noise is known."""
        spans = [math.fsum(self._prior[low + 1 : high + 1]) for low, high in pairwise(fit.positions)]
        spans = spans if any(spans) else [1.0] * len(spans)
        whole = math.fsum(spans)
        logs = [
            fit.against_nothing(split, build_noise.size(max(fit.levels(split).step, 0.0))) + math.log(span / whole)
            for split, span in enumerate(spans)
            if span
        ]
        best = max(logs)
        ways = math.fsum(math.exp(log - best) for log in logs)
        return 1 / (1 + (1 - NOTHING) / NOTHING * math.exp(min(best, 700.0)) * ways)
