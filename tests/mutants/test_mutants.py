"""The mutation study in small: its operators find their places, its table is of today, and its machinery kills."""

from pathlib import Path

import pytest

from tests.mutants.explanations import explanations
from tests.mutants.mutants import Mutant, applications, chosen, history, sources
from tests.mutants.operators import OPERATORS
from tests.mutants.source import Source, begin_of, end_of
from tests.mutants.study import Study, emulation_flags

FEWEST = 60
HAND = "make mutants, then put the survivors' reasons in tests/mutants/explanations.yaml in order"
QUICK = {
    "history: row sum counted by every lane again in the reduction": "wrong values",
    "history: partials of ranges that see no key never written": "wrong values",
    "history: the reduction of decode does not wait for its first pass": "race",
    "fa1.cuh fa1_kernel: barrier dropped: `__syncthreads()` -> nothing": "race",
    "fa1.cuh fa1_kernel: branch taken: `highest == kMasked ? 0.0f : highest` -> `highest`": "wrong values",
}
"""Mutants that a run of the tests tries, and what shows them."""


@pytest.fixture(scope="module")
def mutants() -> dict[str, Mutant]:
    """Every place where an operator applies, and the history's own, by identity."""
    files = sources()
    return {mutant.key: mutant for mutant in [*applications(files), *history(files)]}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of two variants; the one that compiles quickly is held to be right without a mistake."""
    return Study(tmp_path_factory.mktemp("mutants"), variants=("fa1", "split_k", "decode"), small=True)


def test_every_operator_has_its_places() -> None:
    """A kernel that is written anew must not leave an operator without work unnoticed."""
    tried = chosen(sources())
    assert FEWEST < len(tried)
    assert {operator.name for operator in OPERATORS} <= {mutant.operator for mutant in applications(sources())}


def test_identities_are_unique_and_mistakes_change_the_text(mutants: dict[str, Mutant]) -> None:
    """A reason belongs to one mutant, and no mutant is the kernel itself."""
    files = sources()
    assert len(mutants) == len([*applications(files), *history(files)])
    assert [] == [key for key, mutant in mutants.items() if mutant.text == mutant.source.text]


def test_reasons_are_given_for_mutants_that_are_there(mutants: dict[str, Mutant]) -> None:
    """A reason for a mutant that is gone would be read as one for another."""
    assert [] == [key for key in explanations() if key not in mutants], HAND


def test_large_tiles_are_always_chosen_for_a_device() -> None:
    """The macro is the kernels' own: were it renamed, the tiles would be left out, and a barrier with them."""
    assert any(flag.startswith("-DATTENTION_WIDE_64_BLOCKS=-") for flag in emulation_flags("sm_90"))
    assert not any("=-" in flag for flag in emulation_flags())


@pytest.mark.slow
@pytest.mark.parametrize("key", QUICK)
def test_a_mistake_is_found(study: Study, mutants: dict[str, Mutant], key: str) -> None:
    """By the emulator where it is one of order, by the bounds where it is one of arithmetic."""
    assert QUICK[key] == study.outcome(mutants[key]).how


def test_expressions_end_at_their_brackets() -> None:
    """Templates have brackets too; what is compared or shifted has not."""
    code = "x = f<T, 2>(a >> 1, b < c && d ? e : g);"
    assert "b < c" == code[begin_of(code, code.index(" <")) : end_of(code, code.index("< c"))].strip()
    assert "f<T, 2>(a >> 1, b < c && d ? e : g)" == code[begin_of(code, code.index("<")) : end_of(code, 4)]


def test_comments_assertions_and_checks_of_arguments_are_no_code() -> None:
    """Operators leave them alone; positions stay those of the text."""
    text = (
        'int f() {\n  // a < b\n  static_assert(a < b, "");\n  if (a < b) return kTooLarge;\n  return a < c;\n}\n'
    )
    source = Source("x.cuh", text)
    assert len(text) == len(source.code)
    assert ["return a < c;"] == [source.line_text(i) for i in range(len(text)) if source.code[i] == "<"]
    assert ("f", 5) == (source.scope(text.index("c;")), source.line(text.index("c;")))


def test_the_thinning_rule_does_not_depend_on_other_mutants(mutants: dict[str, Mutant]) -> None:
    """Kept or not is drawn from the identity alone, at about the operator's share."""
    shares = {operator.name: operator.share for operator in OPERATORS}
    shifted = [mutant for mutant in mutants.values() if mutant.operator == "comparison shifted"]
    kept = [mutant for mutant in shifted if mutant.kept]
    assert shares["comparison shifted"] == pytest.approx(len(kept) / len(shifted), abs=0.15)


def test_a_reason_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """Whichever were read last would hide the other."""
    file = tmp_path / "reasons.yaml"
    file.write_text("- {verdict: slower, because: x, mutants: [a]}\n- {verdict: hole, because: y, mutants: [a]}\n")
    with pytest.raises(ValueError, match="named twice"):
        explanations(file)
