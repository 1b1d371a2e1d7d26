"""One variant against itself, itself made slower, and its known good: what is decided, and what is still open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loop.actions.timed import of
from loop.bench.room import Side
from loop.bench.timing import Timings
from loop.model.measurement import NullControl, PositiveControl
from loop.model.target import Workload
from loop.rules import compare, sequential


@dataclass
class Contest:
    """Decides pair by pair, block after block; what is decided stays so."""

    candidate: Side
    good: Side | None
    """The known good, where there is another one."""
    timed: Sequence[Workload]
    slowdown: float
    calibrated: Workload
    """The workload that the positive control is tried on."""
    decided: dict[tuple[str, str], sequential.Decision] = field(default_factory=dict)

    @property
    def again(self) -> Side:
        """The same binary once more: the null control."""
        return self.candidate.renamed(f"{self.candidate.name} again")

    @property
    def slowed(self) -> Side:
        """The same binary, made slower on purpose: the positive control."""
        return self.candidate.renamed(f"{self.candidate.name} slowed", slow=self.slowdown)

    @property
    def sides(self) -> list[Side]:
        """Everything that is timed."""
        return [self.candidate, self.again, *([self.good] if self.good else []), self.slowed]

    def pending(self, timings: Timings) -> Mapping[str, Sequence[str]]:
        """Decide what can be decided, and name the sides that are still to be timed on each workload."""
        open_: dict[str, list[str]] = {}
        for workload in self.timed:
            left = [other.name for other in self._others(workload) if not self._decide(timings, workload, other)]
            if left:
                open_[workload.name] = [self.candidate.name, *left]
        return open_

    def _others(self, workload: Workload) -> list[Side]:
        found = [self.again, *([self.good] if self.good else [])]
        return [*found, self.slowed] if workload.name == self.calibrated.name else found

    def _decide(self, timings: Timings, workload: Workload, other: Side) -> bool:
        key = (workload.name, other.name)
        if key not in self.decided:
            found = sequential.decide(self._logs(timings, workload, other), len(self.timed))
            if found is not None:
                self.decided[key] = found
        return key in self.decided

    def _logs(self, timings: Timings, workload: Workload, other: Side) -> list[float]:
        """Log ratios of the blocks; the slowed side is a candidate itself, everything else a reference."""
        names = (self.candidate.name, other.name) if other.slow else (other.name, self.candidate.name)
        return compare.log_ratios(of(timings, workload), *names)

    def decision(self, timings: Timings, workload: Workload, other: Side) -> sequential.Decision:
        """What was decided, or what can be said now that the time is over."""
        found = self.decided.get((workload.name, other.name))
        return found or sequential.conclude(self._logs(timings, workload, other), len(self.timed))

    def null_control(self, timings: Timings) -> NullControl:
        """What came of the variant against itself."""
        decisions = {w.name: self.decision(timings, w, self.again) for w in self.timed}
        words = [decision.verdict for decision in decisions.values()]
        logs = [self._logs(timings, workload, self.again) for workload in self.timed]
        return NullControl(
            variant=self.candidate.name,
            comparisons=len(words),
            same=words.count("same"),
            inconclusive=words.count("inconclusive"),
            false=tuple(f"{d.verdict} on {w}" for w, d in decisions.items() if d.verdict in ("faster", "slower")),
            blocks=max(map(len, logs), default=0),
            block_sd=compare.noise(logs),
        )

    def positive_control(self, timings: Timings) -> PositiveControl:
        """Whether the slowdown put in on purpose was seen."""
        found = self.decision(timings, self.calibrated, self.slowed)
        logs = self._logs(timings, self.calibrated, self.slowed)
        return PositiveControl(
            variant=self.candidate.name,
            workload=self.calibrated.name,
            slowdown=self.slowdown,
            verdict=found.verdict,
            e_value=found.e_value,
            blocks=len(logs),
            reason=found.reason,
        )
