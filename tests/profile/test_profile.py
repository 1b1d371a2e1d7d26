"""The compiler's report, the processor's counters, and what is said where there are none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import finish
from loop.model.workloads import expand
from loop.profile import profile
from loop.profile.profile import count, vector_share
from loop.workers.bench import Bench
from loop.workers.messages import Observe, Observed
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


def test_a_listing_tells_vectors_from_single_elements() -> None:
    """Two of four: moves are no arithmetic."""
    assert 0.5 == vector_share(LISTING)
    assert vector_share("\tmovl\t%eax, %ebx\n") is None


def test_a_worker_that_counts_is_believed(small: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it counted, without what it could not; its process prepares the call first."""
    asked: list[type] = []
    reply = Observed({"cycles": 10, "instructions": 20, "cache_misses": None}, "no misses", 2)
    found = _count(small, monkeypatch, lambda request: (asked.append(type(request)), reply)[1])
    assert [Observe] == asked
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
