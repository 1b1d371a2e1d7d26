"""A whole search against simulated histories: the right commit, few builds, nothing wrongly named, resumable."""

import errno
import math
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loop.base.errors import MachineFailure
from loop.base.processes import Tick, run_to_end
from loop.bisect.hunt import Bisection
from loop.bisect.trying import CommitLine, KernelProbe, Observing, ProbeMemory, Prober, Untestable, read_commits
from loop.model.bisect import BisectAnswer, Candidate, Metric, Probe
from loop.model.measurement import Check, VariantChecks
from loop.workers.program import WorkerLost
from tests.bisect.histories import make_history

COUNT = 32


@dataclass
class Simulated(Prober):
    """A history in which some commits are slower than their parents, or fail, and some do not build."""

    line: CommitLine
    steps: Mapping[int, float]
    sd: float = 0.0
    broken: frozenset[int] = frozenset()
    draw: random.Random = field(default_factory=lambda: random.Random(1))
    tried_so_far: list[str] = field(default_factory=list)
    most: int | None = None
    """Count of probes after which the search is interrupted."""
    metric: Metric = "correctness"

    path: Path = Path()

    @property
    def memory(self) -> ProbeMemory:
        """In a file of the test's own."""
        return ProbeMemory(self.path)

    def level(self, commit: str) -> float:
        """Log time of a commit: the sum of the steps up to it."""
        index = [entry.commit for entry in self.line.commits].index(commit)
        return math.fsum(step for at, step in self.steps.items() if at <= index)

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Observing:
        """Pairs of a latency, or runs."""
        yield Tick("simulated")
        if self.most is not None and len(self.tried_so_far) >= self.most:
            raise KeyboardInterrupt
        self.tried_so_far.append(candidate.commit)
        if [entry.commit for entry in self.line.commits].index(candidate.commit) in self.broken:
            raise Untestable("does not build")
        apart = self.level(candidate.commit) - self.level(against.commit)
        if self.sd:
            return tuple(apart + self.draw.gauss(0, self.sd) for _ in range(count))
        return (float(self.level(candidate.commit) == 0),) * count


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> CommitLine:
    """A line of real commits in a repository."""
    folder = tmp_path_factory.mktemp("history") / "r"
    commits = make_history(folder, [str(number) for number in range(COUNT)])
    return read_commits(folder, commits[0], "HEAD")


def hunted(line: CommitLine, prober: Simulated, memory: Path) -> BisectAnswer:
    prober.path = memory
    answer = run_to_end(Bisection(line, prober).run())
    assert isinstance(answer, BisectAnswer)
    return answer


def subjects(answer: BisectAnswer) -> list[str]:
    """Subjects of the culprits."""
    return [item.subject for item in answer.culprits]


@pytest.mark.parametrize("culprit", range(1, COUNT, 3))
def test_a_failure_is_found_in_few_builds(line: CommitLine, tmp_path: Path, culprit: int) -> None:
    """log2 N and the two ends, the confirmation among them."""
    answer = hunted(line, Simulated(line, {culprit: 1.0}), tmp_path / "m")
    assert ("culprit", [f"commit {culprit}"]) == (answer.outcome, subjects(answer))
    assert answer.builds <= math.ceil(math.log2(COUNT)) + 2


def test_what_was_lost_is_asked_again(line: CommitLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a search that gave up, the same command tries lost probes again."""
    prober = Simulated(line, {7: 1.0})

    def lost(*_: object) -> Generator[Tick, None, tuple[float, ...]]:
        yield Tick("simulated")
        raise WorkerLost("hung", "no machine", "")

    monkeypatch.setattr(prober, "observe", lost)
    assert "inconclusive" == hunted(line, prober, tmp_path / "m").outcome
    again = hunted(line, Simulated(line, {7: 1.0}), tmp_path / "m")
    assert ["commit 7"] == subjects(again)


def test_a_disk_that_fills_says_nothing_of_a_commit(
    line: CommitLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends the search without storing that probe; with room again, it finds the culprit."""
    tried = Simulated(line, {7: 1.0})
    full: dict[Path, int] = {}

    def fill(candidate: Candidate, count: int, against: Candidate) -> Observing:
        if len(tried.tried_so_far) == 2:
            full[tmp_path] = errno.ENOSPC
        return (yield from Simulated.observe(tried, candidate, count, against))

    monkeypatch.setattr("loop.machine.failures.Folders.write_errors", lambda self: dict(full))
    monkeypatch.setattr(tried, "observe", fill)
    with pytest.raises(MachineFailure, match="No space left on device"):
        hunted(line, tried, tmp_path / "m")
    assert 2 == len(ProbeMemory(tmp_path / "m").probes())
    full.clear()
    again = hunted(line, Simulated(line, {7: 1.0}), tmp_path / "m")
    assert ["7"] == [subject.rpartition(" ")[2] for subject in subjects(again)]


def test_a_damaged_probe_is_named_and_costs_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The search makes that one anew; later ones are saved after it."""
    memory = ProbeMemory(tmp_path / "m")
    probes = [
        Probe(commit="a" * 40, against="b" * 40, why="try", status="measured", values=(value,))
        for value in (0.5, 0.25, 0.125)
    ]
    for probe in probes[:2]:
        memory.append(probe)
    memory.path.write_text(memory.path.read_text().replace("0.5", "0.7"))
    assert (probes[1],) == memory.probes()
    assert f"{memory.path}:1: damaged: its checksum does not match" in capsys.readouterr().err
    memory.append(probes[2])
    assert (*probes[1:],) == memory.probes()


def test_saved_probes_that_were_cut_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever the cut is: also between two lines, and where nothing is left."""
    memory = ProbeMemory(tmp_path / "m")
    probe = Probe(commit="a" * 40, against="b" * 40, why="try", status="measured", values=(0.5,))
    memory.append(probe)
    line = memory.path.read_bytes().splitlines(keepends=True)[0]
    for number, content in enumerate((b"", line[:20], line[:-1], line)):
        cut = ProbeMemory(tmp_path / f"cut{number}")
        cut.path.write_bytes(content)
        assert (probe,) * (number > 1) == cut.probes()
        assert f"{cut.path}: damaged" in capsys.readouterr().err
        cut.append(probe)
        assert (probe,) * (1 + (number > 1)) == cut.probes()


def test_runs_of_a_commit_use_values_that_none_of_its_saved_runs_used(tmp_path: Path) -> None:
    """A kernel that is wrong on few values is not called right because two of them were tried over and over."""

    class WrongOnSeed5(KernelProbe):
        memory = ProbeMemory(tmp_path / "m")  # type: ignore[assignment]

        def __init__(self) -> None:
            self.metric, self.workloads = "correctness", ()

        def build_side(self, name: str, candidate: Candidate) -> Generator[Tick, None, None]:  # type: ignore[override]
            yield Tick("building")

        def verify_side(self, side: object, seed: int, **_: bool) -> Generator[Tick, None, VariantChecks]:  # type: ignore[override]
            yield Tick("verifying")
            status = "wrong" if seed == 5 else "right"
            check = Check.model_construct(status=status)
            return VariantChecks.model_construct(checks=(check,))

    commit = Candidate(commit="a" * 40, subject="s", tree="t")
    values: list[float] = []
    for _ in range(3):
        values += (runs := run_to_end(WrongOnSeed5().observe(commit, 2, commit)))
        probe = Probe(commit=commit.commit, against=commit.commit, why="try", status="measured", values=runs)
        WrongOnSeed5.memory.append(probe)
    assert [1, 1, 1, 1, 1, 0] == values
