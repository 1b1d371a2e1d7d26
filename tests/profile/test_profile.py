"""The compiler's report, the processor's counters, and what is said where there are none."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import finish
from loop.calls.counters import Counters, reason
from loop.model.target import CAbiVariant
from loop.model.workloads import expand
from loop.profile import profile
from loop.profile.profile import VectorReport, compiler_report, count, vector_share
from loop.workers.bench import Bench
from loop.workers.messages import CountCalls, Counts, Prepare
from tests.targets import compiled, importable, make_sides, open_bench, write_target

LISTING = """
\tvaddps\t(%rax), %zmm0, %zmm1
\tvfmadd231ps\t%zmm1, %zmm2, %zmm0
\tmulsd\t8(%rax), %xmm0
\tmovaps\t%xmm0, (%rax)
\tvaddss\t%xmm0, %xmm1, %xmm1
"""


@pytest.fixture
def small(tmp_path: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench with one optimised and one Python variant; nothing of it needs torch."""
    fast = compiled("right", build={"compiler": "g++", "flags": ["-std=c++17", "-O3"]})
    missing = compiled("right", build={"compiler": "no-such-compiler", "flags": []})
    folder = tmp_path / "tiny"
    variants = {"fast": fast, "python": importable("double"), "missing": missing}
    with open_bench(folder, write_target(folder, variants), build_cache) as made:
        yield made


def report(bench: Bench, name: str, build_id: str = "abc") -> VectorReport:
    """The compiler's report on a variant."""
    variant = bench.target.variants[name]
    assert isinstance(variant, CAbiVariant)
    found: VectorReport = finish(compiler_report(bench, variant, build_id))
    return found


def test_a_listing_tells_vectors_from_single_elements() -> None:
    """Two of four: moves are no arithmetic."""
    assert 0.5 == vector_share(LISTING)
    assert vector_share("\tmovl\t%eax, %ebx\n") is None


def test_the_report_is_made_once_and_kept_beside_the_build(small: Bench) -> None:
    """The second time nothing is compiled, whatever the sources are by then."""
    first = report(small, "fast", "kept-once")
    assert first.vectorised is not None
    assert first.vectorised > 0
    (small.folder / "scale.cpp").write_text("this is no C++")
    assert first == report(small, "fast", "kept-once")
    kept = json.loads((small.cache / "reports" / "kept-once.json").read_text())
    assert first.vectorised == kept["vectorised"]


def test_another_compiler_is_unknown(small: Bench) -> None:
    """It says why."""
    assert "no-such-compiler is not gcc" in report(small, "missing").why


def test_counters_are_numbers_or_unknown_with_a_reason() -> None:
    """Most virtual machines give none; where there are some they count something."""
    with Counters() as counters:
        opened = counters.open()
        counters.start()
        counts = counters.stop()
    assert {"cycles", "instructions", "cache_misses"} == set(counts)
    if opened:
        assert any(value for value in counts.values())
    else:
        assert ({None}, True) == (set(counts.values()), bool(counters.why_not))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "not permitted here (kernel.perf_event_paranoid is 4; 2 or less allows it)"),
        (errno.ENOENT, "this machine offers none"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EMFILE, "perf_event_open: too many"),
    ],
)
def test_a_counter_that_cannot_be_had_says_why(number: int, words: str, tmp_path: Path) -> None:
    """Whether somebody can change it, and how."""
    (tmp_path / "paranoid").write_text("4\n")
    assert words in reason(OSError(number, "too many"), tmp_path / "paranoid")


def test_without_counters_nothing_is_started(small: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is all there is to know."""
    monkeypatch.setattr(profile, "no_counters", lambda: "not permitted")
    workload = expand(small.target, ["some"], "float32")[0]
    found = finish(count(small, small.side("python"), workload))
    assert ("not permitted", {}) == (found.why, found.counters)


def test_a_worker_that_counts_is_believed(small: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it counted, without what it could not; its process prepares the call first."""
    asked: list[type] = []
    reply = Counts({"cycles": 10, "instructions": 20, "cache_misses": None}, "no misses", 2)
    found = _count(small, monkeypatch, lambda request: (asked.append(type(request)), reply)[1])
    assert [Prepare, CountCalls] == asked
    assert (2, {"cycles": 10, "instructions": 20, "cache_misses": None}, "no misses") == (
        found.calls,
        found.counters,
        found.why,
    )


def _count(bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: Any) -> Any:
    """Count the fast variant in a machine that has counters, with a worker that answers like this."""

    class Answering:
        def __enter__(self) -> "Answering":
            return self

        def __exit__(self, *_: object) -> None: ...

        def receive(self, limit_s: float, note: str) -> Iterator[Any]:
            yield from ()

        def ask(self, request: object, **_: object) -> Iterator[Any]:
            yield from ()
            return answer(request)

    def nothing(*_: object, **__: object) -> Iterator[Any]:
        yield from ()

    monkeypatch.setattr(profile, "no_counters", lambda: "")
    side = make_sides(bench, "fast")[0]
    monkeypatch.setattr(Bench, "expect", nothing)
    monkeypatch.setattr(Bench, "open", lambda *_: Answering())
    return finish(count(bench, side, expand(bench.target, ["some"], "float32")[0]))
