"""What a search has to know of its observations, latencies or runs that pass or fail. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from loop.bisect.model import Conclusion, Key, Observations, Problem, Try
from loop.model.bisect import Claim

Word = Literal["confirmed", "failed", "open"]


class Evidence(ABC):
    """What was observed of the commits, and what it says. `low` and `high`: two positions that differ."""

    def __init__(self, problem: Problem, observations: Observations) -> None:
        self.problem, self.seen = problem, observations

    def look(self, position: int, batch: int, why: str) -> Try:
        """Observe a position."""
        return Try(self.seen.positions.shown(position), batch, why)

    def name(self, position: int) -> str:
        """The commit of a position, for people."""
        return self.problem.commits[self.seen.positions.shown(position)].name

    @abstractmethod
    def ends(self, low: int, high: int) -> Try | Conclusion | None:
        """What is needed to see that two positions differ; None once that is evident."""

    @abstractmethod
    def scores(self, low: int, high: int) -> tuple[Sequence[int], Sequence[float]]:
        """Observed positions in order, and the log likelihood of a step in each gap between two of them."""

    @abstractmethod
    def batch(self, low: int, high: int, position: int, *, sure: bool) -> int:
        """How many more observations of a position tell its side, leaning or `sure`; 0 where more would not."""

    def doubt(self, low: int, high: int) -> float:
        """Probability that there is no step, only noise between builds."""
        return 0.0

    def apart(self, low: int, high: int) -> int | None:
        """A position on neither end's level: there are steps on both sides of it."""
        return None

    def beside(self, low: int, high: int, sides: tuple[int, int]) -> Try | None:
        """A look at another build on either side of the step, where that shows how far builds differ."""
        return None

    @abstractmethod
    def certain(self, parent: int, suspect: int) -> Try | bool:
        """Whether a suspect needs no confirmation; or a look that tells."""

    @abstractmethod
    def claim(self, low: int, high: int, number: int) -> Claim:
        """What a confirmation has to show, fixed before its first observation."""

    @abstractmethod
    def word(self, key: Key) -> tuple[Word, float]:
        """What the fresh observations of a confirmation say, and their evidence."""

    @abstractmethod
    def confirm(self, key: Key, claim: Claim) -> Try:
        """The next observations of a confirmation."""

    @abstractmethod
    def step(self, low: int, high: int, key: Key) -> tuple[float, bool]:
        """The step of a confirmed culprit, and whether much of the whole step remains."""

    @abstractmethod
    def said(self, step: float) -> str:
        """A step, for people."""
