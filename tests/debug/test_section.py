"""An error map in words, and the conclusion of debugging at the top of the report."""

from collections.abc import Sequence
from typing import Any

import pytest

from loop.model.measurement import Check, Span, VariantChecks
from loop.model.output import ComponentChecks, DebugOutput, Explanation, Smallest
from loop.model.record import Finished
from loop.model.target import Signature
from loop.report.findings import describe_location
from loop.session.page import make_diagnoses
from tests.makers import make_check, make_finished, make_record, make_report, make_session_head, make_verify

HEAD = make_session_head()
WRONG = make_check(right=False)


def step(name: str, output: Any) -> Finished:
    """The end of a step of defensive debugging."""
    return make_finished(name, action=f"debug.{name}", pattern="baseline-first", output=output)


def verified(*checks: Check) -> Finished:
    """The end of a verification of `cpu`."""
    return make_finished(output=make_verify(*checks))


def component(name: str, right: bool) -> ComponentChecks:
    checks = VariantChecks(variant=f"cpu {name}", build_id=None, checks=(make_check(right=right),))
    return ComponentChecks(component=name, variant="cpu", title=f"does {name}", checks=checks)


def components(*parts: ComponentChecks) -> Finished:
    """The end of the step on components."""
    return step("components", DebugOutput(ok=True, message="looked at", components=parts))


def small(note: str = "") -> Finished:
    """The end of the search for the smallest workload."""
    smallest = Smallest(
        variant="cpu",
        check=make_check("B1 H1 S65 D1 float32", right=False),
        words="B=1 H=1 S=65 D=1 dtype=float32",
        seed=9,
        probes=20,
        minimal=not note,
        note=note,
    )
    return step("smallest", DebugOutput(ok=True, message="found", smallest=(smallest,)))


def explain(**fields: Any) -> Finished:
    """The end of the step that explains `cpu`."""
    terms = {"cause": "", "as_if": (), "workload": "w", "rule": "", "held": 0, "where": "", **fields}
    explanation = Explanation(variant="cpu", **terms)
    return step("explain", DebugOutput(ok=True, message="found", explanations=(explanation,)))


def lines(*finished: Finished) -> list[tuple[str, str]]:
    """Lines of the diagnosis of `cpu`."""
    (diagnosis,) = make_diagnoses(HEAD, finished)
    return list(diagnosis.lines)


def report(finished: Sequence[Finished]) -> str:
    """The report of a failed session."""
    return make_report(make_record(HEAD, status="failed"), finished)


def test_everything_that_was_found_stands_at_the_top() -> None:
    """Cause, rule and place first, then component, smallest workload, and the command that repeats it."""
    finished = (
        verified(WRONG),
        components(component("first", True), component("second", False)),
        small(),
        explain(cause="as if a were zero", rule="wrong where S > 64, right where S <= 64", held=12, where="all"),
    )
    text = report(finished)
    top = text[: text.index("Next: ")]
    assert "What is wrong:" in top
    assert [
        "- Cause: as if a were zero",
        "- Rule: wrong where S > 64, right where S <= 64 (12 of 12 fresh workloads as foreseen)",
        "- Where: all",
        "- Component: second (does second) is wrong: 3 of 4096 elements wrong on B1 H1 S64 D64 float32",
        "- Component: right by itself: first",
        "- Smallest workload: B1 H1 S65 D1 float32",
    ] == [line.replace("\\", "") for line in text.splitlines() if line.startswith("- ")][:6]
    assert "loop kernels verify cpu --workloads 'B=1 H=1 S=65 D=1 dtype=float32' --device cpu" in text


def test_a_fault_in_the_variants_own_words_comes_first() -> None:
    """The emulator's message comes before any conclusion."""
    fault = "error 9: split_k.cuh:88: read of shared memory nobody wrote on B1 H1 S64 D64 float32"
    check = make_check(right=False, status="refused", message=fault, worst=None, first=None)
    assert ("Fault", fault) == lines(verified(WRONG, check), small())[0]


SIGNATURE = Signature.model_validate(
    {"inputs": {"q": "B H Sq D"}, "outputs": {"output": "B H Sq D"}, "words": {"H": "heads", "Sq": "query rows"}}
)


def spans(**numbers_by_name: tuple[int, int, int, int]) -> dict[str, Span]:
    """First, last, count and size by dimension."""
    names = ("first", "last", "count", "size")
    return {name: Span(**dict(zip(names, numbers, strict=True))) for name, numbers in numbers_by_name.items()}


def wrong(**fields: Any) -> Check:
    return make_check(right=False).model_copy(update=fields)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((64, 127, 64, 128), "query rows 64 to 127 of 128"),
        ((64, 64, 1, 128), "query rows 64 alone, of 128"),
        ((0, 127, 128, 128), "all query rows"),
        ((1, 127, 64, 128), "64 of 128 query rows between 1 and 127"),
    ],
)
def test_a_place_is_described_in_the_manifests_words(numbers: tuple[int, int, int, int], expected: str) -> None:
    """A place is a whole dimension, a range, a single index, or some of the indices."""
    assert expected == describe_location(wrong(spans=spans(Sq=numbers)), SIGNATURE)
