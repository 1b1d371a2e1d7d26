"""One of our own binaries against others, block after block: what is decided, and what is still open."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from loop.base.stats import clipped
from loop.model.measurement import NullControl, PositiveControl
from loop.model.target import Workload
from loop.timing import samples, verdicts
from loop.timing.ratios import noise
from loop.timing.samples import Timings
from loop.workers.bench import Side

HOPEFUL = math.log1p(verdicts.MARGIN) / 2
"""Mean log ratio above which a candidate that is not clear may be faster by more than the margin."""


@dataclass(frozen=True)
class Rival:
    """What a candidate is compared with, and on what."""

    side: Side
    workloads: Sequence[Workload]


def itself(candidate: Side, workloads: Sequence[Workload]) -> Rival:
    """The same binary once more: the null control."""
    return Rival(candidate.renamed(f"{candidate.name} again"), workloads)


def slowed(candidate: Side, share: float, workloads: Sequence[Workload]) -> Rival:
    """The same binary, made slower by a share of its time: the positive control."""
    return Rival(candidate.renamed(f"{candidate.name} slowed by {share:.0%}", slow=share), workloads)


def hopeful(words: Collection[verdicts.Word], logs: Sequence[Sequence[float]]) -> bool:
    """Whether more blocks may keep a candidate: nowhere certainly faster or slower, and faster in the mean.

    `words`: its verdict on each workload so far; `logs`: log ratios of the blocks of each.
    """
    means = [fmean(clipped(values).values) for values in logs if values]
    return {"inconclusive"} <= {*words} <= {"inconclusive", "same"} and fmean(means) > HOPEFUL


@dataclass
class Contest:
    """Decides pair by pair; what is decided stays so, and is not timed any more."""

    candidate: Side
    rivals: Sequence[Rival]
    number: int = 0
    """Which candidate of a campaign it is; 0 outside one."""
    controls: Sequence[Rival] = ()
    """The null and the positive control, where it has any of its own."""
    most: int = verdicts.MAX_BLOCKS
    """Blocks after which what is not clear stays so."""
    decided: dict[tuple[str, str], verdicts.Decision] = field(default_factory=dict)

    @property
    def others(self) -> list[Rival]:
        """All that the candidate is timed with."""
        return [*self.controls, *self.rivals]

    @property
    def sides(self) -> list[Side]:
        """Everything that is timed."""
        return [self.candidate, *(rival.side for rival in self.others)]

    @property
    def known_good(self) -> bool:
        """Whether a rival is another build than the candidate's, besides its two controls."""
        return any(rival.side.build_id != self.candidate.build_id for rival in self.rivals)

    @property
    def workloads(self) -> list[Workload]:
        """Everything that any rival is compared on."""
        return list({workload.name: workload for rival in self.others for workload in rival.workloads}.values())

    def pending(self, timings: Timings) -> Mapping[str, Sequence[str]]:
        """Decide what can be decided, and name the sides that are still to be timed on each workload."""
        pending: dict[str, list[str]] = {}
        for rival in self.others:
            for workload in rival.workloads:
                if not self._decide(timings, workload, rival):
                    pending.setdefault(workload.name, [self.candidate.name]).append(rival.side.name)
        return pending

    def promising(self, timings: Timings) -> bool:
        """Whether more blocks may keep the candidate, and its null control does not come out faster or slower."""
        pairs = [(workload, rival) for rival in self.rivals for workload in rival.workloads]
        words = [self.decision(timings, *pair).verdict for pair in pairs]
        failed = any(self.told_apart(timings, rival) for rival in self.controls[:1])
        return not failed and hopeful(words, [self.logs(timings, *pair) for pair in pairs])

    def _decide(self, timings: Timings, workload: Workload, rival: Rival) -> bool:
        """Whether a pair is decided, now or before."""
        key = (workload.name, rival.side.name)
        if key not in self.decided:
            decision = verdicts.by_evidence(*self._evidence(timings, workload, rival), self.most)
            if decision is not None:
                self.decided[key] = decision
        return key in self.decided

    def _evidence(self, timings: Timings, workload: Workload, rival: Rival) -> tuple[list[float], int, float, int]:
        """Log ratios, number of workloads, allowance for kept processes, number of the candidate."""
        shared = samples.process_variance(timings.of(workload.name), *self._sides(rival))
        return self.logs(timings, workload, rival), len(self.workloads), verdicts.allowance(shared), self.number

    def _sides(self, rival: Rival) -> tuple[str, str]:
        """Reference and candidate by name; a slowed side is a candidate itself, everything else a reference."""
        names = (rival.side.name, self.candidate.name)
        return (names[1], names[0]) if rival.side.slow else names

    def logs(self, timings: Timings, workload: Workload, rival: Rival) -> list[float]:
        """Log ratios of the blocks."""
        return samples.log_ratios(timings.of(workload.name), *self._sides(rival))

    def decision(self, timings: Timings, workload: Workload, rival: Rival) -> verdicts.Decision:
        """What was decided, or what can be said now that the time is over."""
        decision = self.decided.get((workload.name, rival.side.name))
        return decision or verdicts.conclude(*self._evidence(timings, workload, rival))

    def told_apart(self, timings: Timings, rival: Rival) -> dict[str, str]:
        """Workloads on which a side came out faster or slower, and which of the two."""
        words = {w.name: self.decision(timings, w, rival).verdict for w in rival.workloads}
        return {name: word for name, word in words.items() if word in ("faster", "slower")}

    def null_control(self, timings: Timings, rival: Rival) -> NullControl:
        """What came of the variant against itself."""
        words = [self.decision(timings, workload, rival).verdict for workload in rival.workloads]
        logs = [self.logs(timings, workload, rival) for workload in rival.workloads]
        return NullControl(
            variant=self.candidate.name,
            comparisons=len(words),
            same=words.count("same"),
            inconclusive=words.count("inconclusive"),
            false=tuple(f"{word} on {place}" for place, word in self.told_apart(timings, rival).items()),
            blocks=max(map(len, logs), default=0),
            block_sd=noise(logs),
        )

    def positive_control(self, timings: Timings, rival: Rival) -> PositiveControl:
        """Whether the slowdown put in on purpose was seen on the one workload where it was tried."""
        workload = rival.workloads[0]
        decision = self.decision(timings, workload, rival)
        return PositiveControl(
            variant=self.candidate.name,
            workload=workload.name,
            slowdown=rival.side.slow,
            verdict=decision.verdict,
            e_value=decision.e_value,
            blocks=len(self.logs(timings, workload, rival)),
            reason=decision.reason,
        )


def together(contests: Iterable[Contest], timings: Timings) -> Mapping[str, Sequence[str]]:
    """What is still to be timed of all of them: every contest gets its share of each round."""
    pending: dict[str, list[str]] = {}
    for contest in contests:
        for workload, names in contest.pending(timings).items():
            pending.setdefault(workload, []).extend(names)
    return pending
