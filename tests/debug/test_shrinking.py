"""The search for the smallest failing workload: which workloads it tries, and its result."""

import random
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from loop.base.processes import Tick, run_to_end
from loop.debug.explaining import shrink
from loop.debug.rules import Case
from loop.model.target import Scalar, Signature
from tests.projects import FUNCTIONS, KERNEL, TARGET, loop, make_project

SIGNATURE = Signature.model_validate(
    {
        "inputs": {"q": "B Sq D", "k": "B Sk D"},
        "outputs": {"output": "B Sq D"},
        "attributes": {"causal": {"kind": "flag"}, "scale": {"kind": "number"}},
        "shorthand": {"S": ("Sq", "Sk")},
    }
)
START: dict[str, Scalar] = {
    "B": 2,
    "S": 96,
    "D": 64,
    "causal": True,
    "scale": 0.5,
    "values": "sharp",
    "dtype": "float32",
}
Fails = Callable[[Case], bool]


def shrunk(fails: Fails, start: Case = START) -> tuple[Case, list[Case]]:
    """The result of a search, and all workloads that it tried."""
    best, tried = start, list[Case]()

    def ask(entry: Case) -> Generator[Tick, None, bool]:
        nonlocal best
        tried.append(entry)
        best = entry if fails(entry) else best
        yield Tick("asked")
        return fails(entry)

    run_to_end(shrink(start, SIGNATURE, ask))
    return best, tried


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        (lambda entry: True, {"B": 1, "D": 1, "Sq": 1, "Sk": 1}),
        (lambda entry: int(entry["Sk"]) >= 65, {"B": 1, "D": 1, "Sq": 1, "Sk": 65}),
        (lambda entry: int(entry["Sq"]) > 64 and int(entry["B"]) == 2, {"B": 2, "D": 1, "Sq": 65, "Sk": 1}),
        (lambda entry: entry.get("causal") is True, {"B": 1, "D": 1, "Sq": 1, "Sk": 1, "causal": True}),
        (lambda entry: entry.get("values") == "sharp", {"B": 1, "D": 1, "Sq": 1, "Sk": 1, "values": "sharp"}),
        (lambda entry: int(entry["D"]) % 8 == 0 and int(entry["Sk"]) > 2, {"B": 1, "D": 8, "Sq": 1, "Sk": 3}),
        (lambda entry: entry["Sq"] == entry["Sk"] and int(entry["Sq"]) > 9, {"B": 1, "D": 1, "Sq": 10, "Sk": 10}),
    ],
)
def test_everything_that_does_not_matter_goes(fails: Fails, expected: dict[str, Scalar]) -> None:
    """Flags, kinds of values and sizes; the type stays."""
    assert {**expected, "dtype": "float32"} == shrunk(fails)[0]


@pytest.mark.parametrize("seed", range(200))
def test_what_is_found_fails_and_is_minimal(seed: int) -> None:
    """For random failures: the result fails, no size can be smaller, and no tried workload is larger."""
    draw = random.Random(seed)
    least = {name: draw.choice([1, 1, 2, 3, 17, 64]) for name in ("Sq", "Sk", "D")} | {"B": draw.choice([1, 2])}
    flags = draw.sample(["causal", "scale", "values"], draw.randrange(4))

    def fails(entry: Case) -> bool:
        return all(int(entry[n]) >= size for n, size in least.items()) and all(f in entry for f in flags)

    best, tried = shrunk(fails)
    assert fails(best) or best is START
    assert least == {name: best[name] for name in least}
    assert set(flags) == set(best) & {"causal", "scale", "values"}
    largest = {"B": 2, "Sq": 96, "Sk": 96, "D": 64}
    assert all(int(entry[name]) <= size for entry in tried for name, size in largest.items())


@pytest.mark.slow
def test_what_fails_only_after_other_workloads_is_shown_again_by_all_of_them(tmp_path: Path) -> None:
    """In a fresh process its smallest workload is right, and no smaller one ever failed."""
    remembers = KERNEL.replace("  for (int64_t", "  static int64_t last = 0;\n  for (int64_t")
    remembers = remembers.replace("[0];", "[0] + (last && last != n);").replace(
        "  return 0;", "  last = n;\n  return 0;"
    )
    folder = make_project(tmp_path / "p", remembers)
    (folder / "target.yaml").write_text(TARGET.replace("{N: 3, M: [5, 17]}", "{N: 1, M: [1, 2]}"))
    assert 0 == loop("trust", str(folder)).returncode
    done = loop("run", "pattern", "defensive-debugging", "--target", str(folder))
    assert "float32 (it fails at times, or only after other calls)" in done.stderr, done.stderr
    assert "smaller" not in done.stdout
    assert "Again: loop kernels verify ours --target" in done.stdout


RIGHT, WRONG = "x[i] * (float)attributes[0]", "x[i] * (float)attributes[0] + (in[0].sizes[0] > 1)"
REFUSES = 'def scale(x, *, factor):\n    if x.shape[1] % x.shape[0]:\n        raise ValueError("no such shape")\n'


@pytest.mark.slow
def test_sizes_that_a_variant_does_not_take_are_not_asked_of_the_reference(tmp_path: Path) -> None:
    """It is wrong from two rows on, for columns that are a multiple of them."""
    folder = make_project(tmp_path / "p", KERNEL.replace(RIGHT, WRONG))
    manifest = TARGET.replace("{N: 3, M: [5, 17]}", "{N: 4, M: 12}").replace(
        "entry: scale,", 'entry: scale, takes: "M % N == 0",'
    )
    (folder / "target.yaml").write_text(manifest)
    (folder / "functions.py").write_text(FUNCTIONS.replace("def scale(x, *, factor):\n", REFUSES))
    assert 0 == loop("trust", str(folder)).returncode
    done = loop("run", "pattern", "defensive-debugging", "--target", str(folder))
    assert "ours fails on N2 M2 float32" in done.stdout + done.stderr
    assert "no such shape" not in done.stdout + done.stderr
