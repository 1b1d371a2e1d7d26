"""Definitions from files: bundled and a project's own, every mistake where it stands."""

from pathlib import Path

import pytest

from loop.base.errors import DefinitionError, LoopError
from loop.base.places import find_project
from loop.library import definitions, targets
from loop.library.rates import rates
from loop.session.recorded import read_histories
from tests.projects import TARGET, add_commands, make_project


def complaint(text: str, folder: Path) -> str:
    """What is said of a target.yaml."""
    make_project(folder)
    (folder / "target.yaml").write_text(text)
    with pytest.raises(DefinitionError) as caught:
        targets.read_target(find_project(folder, folder))
    return str(caught.value)


def test_everything_that_ships_is_well_formed(tmp_path: Path) -> None:
    """Patterns by number, plans, target, rates and history."""
    bundled = find_project(None, tmp_path)
    numbers = [read.value.number for read in definitions.patterns(bundled).values()]
    assert [*range(1, 21)] == numbers
    plans = {"baseline", "bisect", "debug", "kernels", "optimize", "quick", "tune"}
    assert plans == set(definitions.plans(bundled))
    assert "attention" == targets.read_target(bundled).value.name
    assert rates(bundled).find_rate(rates(bundled).gpu) is not None
    assert 9 == len(read_histories()[0].sessions)


def test_a_file_is_named_as_what_it_defines(tmp_path: Path) -> None:
    """Otherwise one of the two is a mistake."""
    folder = make_project(tmp_path / "p")
    add_commands(folder, "mine", ["true"])
    (folder / "patterns" / "mine.yaml").rename(folder / "patterns" / "yours.yaml")
    with pytest.raises(DefinitionError, match=r"yours\.yaml:3:7: name: expected 'yours', the file's name"):
        definitions.patterns(find_project(folder, tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", M: [5, 17]", "", "workloads.small.0: expected a size for M, got nothing"),
        (
            "kind: number",
            "kind: nubmer",
            "expected 'flag', 'choice', 'number' or 'text', got 'nubmer' (did you mean 'number'?)",
        ),
        ("entry: scale", "entyr: scale", "did you mean 'entry'?"),
        ("float32: {atol", "float64: {atol", "expected types with a tolerance, got float32"),
        (
            "function: scale",
            "function: scale\nflops: N * Q",
            "target.yaml:5:8: flops: expected a known name, got 'Q'",
        ),
        (
            "{kind: c_abi, device: cpu, sources: [scale.c], entry: scale, build: {compiler: gcc, flags: [-O1]}}",
            "{kind: command, device: cpu, run: [./p, '--n={Nn}', '{x}', '${HOME}', '{ print }']}",
            "variants.ours.run.1: expected one of {N}, {M}, {factor}, {x}, {output}, {dtype}, got '--n={Nn}'"
            " (did you mean 'N'?)",
        ),
        ("format: 2", "format: 3", "format: expected"),
        ("[scale.c]", "[nope.c]", "variants.ours.sources.0: expected a file, got nope.c, which is not there"),
        (
            "entry: scale,",
            "entry: scale, instances: [{symbol: 's<{T}>', over: {T: [int]}, file: no.cu, line: 'make s<{T}>;'}],",
            "variants.ours.instances.0.file: expected a file, got no.cu, which is not there",
        ),
        (
            "entry: scale,",
            "entry: scale, instances: [{symbol: 's<{T}>', over: {T: [int]}, file: s.c, line: 'make s<{N}>;'}],",
            "line: {N}, which `over` does not have",
        ),
        (
            "M: [5, 17]",
            "M: 5, dtype: float16",
            "workloads.small.0.dtype: expected types with a tolerance, got float16",
        ),
    ],
)
def test_mistakes_in_a_target_are_found_where_they_stand(tmp_path: Path, old: str, new: str, said: str) -> None:
    """With line, column, what was expected, and the nearest right word."""
    assert old in TARGET
    assert said in complaint(TARGET.replace(old, new, 1), tmp_path / "p")


def test_an_unknown_name_comes_with_the_nearest_one(tmp_path: Path) -> None:
    """Or with all there are."""
    plans = definitions.plans(find_project(None, tmp_path))
    with pytest.raises(LoopError) as caught:
        definitions.choose(plans, "quik", "plan")
    assert ("no plan 'quik'", "did you mean 'quick'?") == (caught.value.message, caught.value.hint)


COMPONENT = """
components:
  part: {of: ours, title: t, entry: part, workloads: [{N: 3, K: 4}], reference: {python: "functions:scale"},
    signature: {inputs: {y: N K}, outputs: {output: N K}, types: {y: float64}}}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("of: ours", "of: theirs", "components.part.of: expected a compiled variant (ours), got 'theirs'"),
        (
            "K: 4",
            "M: 4",
            "components.part.workloads.0.M: expected one of N, K, dtype, values, weight, got an unknown name",
        ),
        ("{y: float64}", "{x: float64}", "types: expected one of y, output, got 'x'"),
        (
            "title: t,",
            "title: t, values: {odd: {x: {}}},",
            "components.part.values.odd.x: expected one of y, got 'x'",
        ),
    ],
)
def test_mistakes_in_a_component_are_found_where_they_stand(old: str, new: str, said: str, tmp_path: Path) -> None:
    """Against its own signature, not the target's."""
    assert old in COMPONENT
    assert said in complaint(TARGET + COMPONENT.replace(old, new, 1), tmp_path / "p")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("values: {sharp: {y: {scale: 2.0}}}", "values.sharp.y: expected one of x, got 'y'"),
        ("values: {hole: {x: {nan_along: K}}}", "nan_along: expected a dimension of x (N M), got 'K'"),
        (
            "values: {wide: {x: {scale: 2.0}}}",
            "expected a name of its own (normal, wide, constant are there always)",
        ),
        ("memory: 8 * K", "memory: expected a known name, got 'K'"),
    ],
)
def test_kinds_of_values_name_inputs_and_dimensions_that_there_are(line: str, said: str, tmp_path: Path) -> None:
    """A misspelt input would silently get unit normals."""
    assert said in complaint(f"{TARGET}\n{line}\n", tmp_path / "p")
