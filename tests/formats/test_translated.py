"""Another format's task is a target in the cache; solutions in C++ and CUDA are built for it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from loop.base.errors import UsageError
from loop.base.places import tasks_folder
from loop.calls.own_modules import FOLDERS
from loop.cli import app
from loop.formats.model import ForeignTask
from loop.formats.table import write_as_target
from loop.formats.theirs import GateVerdict, Verdict, explain_disagreement, verdicts_agree
from loop.library import targets, trust
from loop.library.definitions import find_project
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.workers import foreign
from tests.formats import tasks
from tests.formats.test_mistakes import task_of


def read(folder: Path) -> Target:
    """The translated target, read as any other."""
    return targets.read_target(find_project(folder, folder)).value


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    """An answer to the task of KernelBench's shape."""
    path = tmp_path / "My-Answer.py"
    path.write_text(tasks.ANSWER)
    return path


def test_a_kernelbench_task_becomes_a_target(tmp_path: Path, answer: Path) -> None:
    """The answer is a variant, the task's Model the reference and the baseline."""
    folder, names = write_as_target(tasks.kernelbench(tmp_path), [str(answer)])
    target = read(folder)
    variant = target.variants["my_answer"]
    assert isinstance(variant, PythonVariant)
    assert (("my_answer",), "ModelNew") == (names, variant.function)
    assert answer.read_text() == (folder / variant.module).read_text()
    assert "task.py:Model" == target.reference.python
    assert 1e-4 == target.tolerance["float32"].atol


def test_nothing_of_theirs_is_touched(tmp_path: Path, answer: Path) -> None:
    """The folders of task and answer are unchanged, and the target is elsewhere."""
    task = tasks.kernelbench(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    folder, _ = write_as_target(task, [str(answer)])
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert tasks_folder() == folder.parent


def test_a_changed_task_has_to_be_allowed_again(tmp_path: Path, answer: Path) -> None:
    """A changed task has to be trusted again; a changed answer has not."""
    task = tasks.kernelbench(tmp_path)

    def allowed() -> bool:
        return trust.is_trusted(find_project(write_as_target(task, [str(answer)])[0], tmp_path))

    first = find_project(write_as_target(task, [str(answer)])[0], tmp_path)
    assert not allowed()
    trust.grant(first.target, trust.definition_hash(first))
    answer.write_text(tasks.ANSWER + "# faster\n")
    assert allowed()
    task.write_text(tasks.KERNELBENCH + "# other\n")
    assert not allowed()


def test_trust_in_several_answers_covers_each_of_them_alone(tmp_path: Path, answer: Path) -> None:
    """`loop targets judge` may name one of them: the same code runs."""
    task, other = tasks.kernelbench(tmp_path), tmp_path / "other.py"
    other.write_text(tasks.ANSWER)
    assert 0 == CliRunner().invoke(app, ["trust", str(task), str(answer), str(other)]).exit_code
    for answers in ([str(other)], [str(answer)]):
        assert trust.is_trusted(find_project(write_as_target(task, answers)[0], tmp_path))


def test_a_command_takes_a_task_for_a_target(tmp_path: Path, answer: Path) -> None:
    """Its answers are variants by their paths, named by their place or as elsewhere."""
    task = tasks.kernelbench(tmp_path)
    done = CliRunner().invoke(app, ["kernels", "list", "--target", str(task)])
    assert "theirs" in done.output
    done = CliRunner().invoke(app, ["kernels", "verify", str(answer), "--target", str(task)])
    assert "variant my_answer: imports Python answers/my_answer.py:ModelNew" in done.output
    assert isinstance(done.exception, UsageError)


GPUMODE_ANSWER = "def custom_kernel(data):\n    x, out = data\n    out.copy_(x + x)\n    return out\n"
PASSED = tasks.REFERENCE.replace(
    "    return torch.randn(size, generator=generator)",
    "    x = torch.randn(size, generator=generator)\n    out = torch.empty(size)\n    return x, out",
).replace("    return 2 * data", "    x, out = data\n    out[...] = 2 * x\n    return out")


def add_utils(task: Path) -> None:
    """Write the module that the reference imports besides torch."""
    (task / "utils.py").write_text("def make_match_reference(*given, **more):\n    return None\n")
    manifest = (task / "task.yml").read_text()
    (task / "task.yml").write_text(
        manifest.replace("lang: py", "  - {name: utils.py, source: utils.py}\nlang: py")
    )


def loaded(path: Path, *names: str) -> list[Any]:
    """Functions of a file that loop wrote, as a worker finds them."""
    before = list(sys.path)
    try:
        return [foreign.import_function(path, name) for name in names]
    finally:
        sys.path[:] = before
        FOLDERS.clear()
        sys.modules.pop("reference", None)
        sys.modules.pop("utils", None)


def test_a_gpumode_task_becomes_a_target(tmp_path: Path) -> None:
    """Cases become workloads without their seeds; an output among the inputs is new for each call."""
    task = tasks.gpumode(tmp_path, reference=PASSED)
    add_utils(task)
    answer = tmp_path / "submission.py"
    answer.write_text(GPUMODE_ANSWER)
    folder, names = write_as_target(task, [str(answer)])
    target = read(folder)
    assert {"benchmarks": ({"size": 1024},), "tests": ({"size": 7}, {"size": 8})} == target.workloads
    assert (("size",), 1e-4) == (target.signature.sizes, target.tolerance["float32"].rtol)
    inputs, expected = loaded(folder / "entry.py", "inputs", "expected")
    (kernel,) = loaded(folder / f"{names[0]}_answer.py", "custom_kernel")
    data = inputs(size=5, seed=3)
    assert foreign.ForeignBuffer((5,), torch.float32) == data[1]
    assert torch.equal(2 * data[0], kernel(data))
    exact = expected((data[0].double(), data[1]))
    assert (torch.float64, True) == (exact.dtype, torch.equal(2 * data[0].double(), exact))


@pytest.mark.parametrize("passed", [True, False])
def test_a_solution_is_unpacked_and_runs(passed: bool, tmp_path: Path) -> None:
    """Its sources are unpacked; one that is passed its outputs returns them, as one that does so by itself."""
    task = tasks.trace(tmp_path)
    content = "def run(x, y):\n    y.copy_(x + x)\n" if passed else "def run(a):\n    return a + a\n"
    spec = {**tasks.SOLUTION["spec"], "destination_passing_style": passed}  # type: ignore[dict-item]
    solution = {**tasks.SOLUTION, "spec": spec, "sources": [{"path": "main.py", "content": content}]}
    (tmp_path / "solutions/mine.json").write_text(json.dumps(solution))
    folder, names = write_as_target(task, [str(tmp_path / "solutions/mine.json")])
    target = read(folder)
    assert {"task": ({"N": 3, "M": 4}, {"N": 5, "M": 4})} == target.workloads
    inputs, expected = loaded(folder / "entry.py", "inputs", "expected")
    (run,) = loaded(folder / f"{names[0]}_answer.py", "run")
    values = inputs(N=3, M=4, device="cpu")
    assert (3, 4) == values["x"].shape
    assert torch.equal(expected(**values), run(**values))


def test_a_definitions_own_generator_makes_the_inputs(tmp_path: Path) -> None:
    """A generator of SOL-ExecBench gets axes and scalars as one dict."""
    generate = "def make(axes, device):\n    return {'x': torch.ones(axes['N'], 4)}\n"
    reference = f"import torch\n\n{generate}\ndef run(x):\n    return x\n"
    task = tasks.sol(tmp_path, reference=reference, custom_inputs_entrypoint="make")
    (inputs,) = loaded(write_as_target(task)[0] / "entry.py", "inputs")
    assert (6, 4) == inputs(N=6, M=4, device="cpu")["x"].shape


@pytest.mark.parametrize(("layer", "state"), [("nn.BatchNorm2d(4)", "free"), ("nn.LayerNorm(4)", "fixed")])
def test_layers_that_count_may_change(layer: str, state: str, tmp_path: Path) -> None:
    """BatchNorm in training changes its buffers in every call; other state has to stay."""
    text = tasks.KERNELBENCH.replace("        self.weight", f"        self.norm = {layer}\n        self.weight")
    modules = read(write_as_target(tasks.kernelbench(tmp_path, text))[0]).modules
    assert modules is not None
    assert state == modules.state


def test_a_changed_answer_is_other_ground(tmp_path: Path, answer: Path) -> None:
    """A resumed session repeats its steps, because links are hashed by their content."""
    chosen = find_project(write_as_target(tasks.kernelbench(tmp_path), [str(answer)])[0], tmp_path)
    before = targets.sources_hash(chosen)
    answer.write_text(tasks.ANSWER + "# faster\n")
    assert before != targets.sources_hash(chosen)


RETURNS = """#include <torch/extension.h>
torch::Tensor run(const torch::Tensor &x) { return x + x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def solution(folder: Path, content: str = RETURNS, **spec: Any) -> Path:
    """A solution's file, by default one that returns its output."""
    base = {
        "language": "cpp",
        "binding": "torch",
        "entry_point": "main.cpp::run",
        "destination_passing_style": False,
    }
    sources = [{"path": "main.cpp", "content": content}, {"path": "more.cpp", "content": "// nothing\n"}]
    described = {**tasks.SOLUTION, "spec": {**tasks.SOLUTION["spec"], **base, **spec}, "sources": sources}  # type: ignore[dict-item]
    path = folder / "compiled.json"
    path.write_text(json.dumps(described))
    return path


def built(folder: Path, **spec: Any) -> tuple[CAbiVariant, str]:
    """The variant, and the translation unit that calls it."""
    target, _ = write_as_target(tasks.trace(folder), [str(solution(folder, **spec))])
    variant = read(target).variants["compiled"]
    assert isinstance(variant, CAbiVariant)
    return variant, (target / variant.sources[0]).read_text()


def test_it_is_built_with_its_other_sources(tmp_path: Path) -> None:
    """Against the headers and libraries of torch."""
    variant, unit = built(tmp_path)
    assert ("cpu", "g++") == (variant.device, variant.build.compiler)
    assert ("answers/compiled/loop_unit.cpp", "answers/compiled/more.cpp") == variant.sources
    assert {"-ltorch", "-Ianswers/compiled"} < set(variant.build.flags)
    assert '#include "main.cpp"' in unit
    assert "loop_made::keep(outputs, run(in_x));" in unit


def test_cuda_runs_on_the_stream_that_it_is_given(tmp_path: Path) -> None:
    """Built by nvcc for the GPU at hand."""
    variant, unit = built(tmp_path, language="cuda")
    assert ("cuda", "nvcc") == (variant.device, variant.build.compiler)
    assert "-arch={arch}" in variant.build.flags
    assert "CUDAStreamGuard" in unit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (RETURNS, 0),
        (RETURNS.replace("x + x", "x"), 1),
        (RETURNS.replace("x + x", "(x + x).to(torch::kDouble)"), 1),
        (RETURNS.replace("torch::Tensor run", "std::vector<torch::Tensor> run").replace("x + x", "{x + x, x}"), 1),
    ],
)
def test_it_is_judged(content: str, code: int, tmp_path: Path) -> None:
    """As any compiled variant; outputs of another element type, or more of them, are wrong."""
    words = [str(tasks.trace(tmp_path)), str(solution(tmp_path, content))]
    assert 0 == CliRunner().invoke(app, ["trust", *words]).exit_code
    done = CliRunner().invoke(app, ["kernels", "verify", words[1], "--target", words[0], "--device", "cpu"])
    assert code == done.exit_code, done.output


def task(**changes: object) -> ForeignTask:
    """A task whose rule differs from loop's in every known way."""
    timing = {"method": "m", "cold_cache": False, "fresh_inputs": False, "checked": False, "score": "s"}
    judging = {"either": True, "atol": 0.01, "rtol": 0.01, "checker": "reference.check"}
    return task_of(timing=timing, judging=judging, **changes)


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("right", "right", True),
        ("wrong", "wrong", True),
        ("right", "wrong", False),
        ("right", "not available", None),
        ("right", "tampered", None),
        ("not judged", "right", None),
    ],
)
def test_two_verdicts_agree_only_where_there_are_two(ours: str, theirs: str, same: bool | None) -> None:
    """A verdict that is not there is neither the same nor another."""
    assert same is verdicts_agree(ours, Verdict.model_validate({"status": theirs}))


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (GateVerdict("wrong", cause="elements"), ("own checker", "same addresses", "fixed seeds", "task.yml:9")),
        (
            GateVerdict("wrong", cause="elements", timed=True),
            ("timed calls; we check", "same inputs", "clear the cache"),
        ),
        (GateVerdict("wrong", cause="changed input"), ("changes its inputs",)),
        (GateVerdict("wrong", cause="NaN"), ("NaN or infinity",)),
    ],
)
def test_what_they_let_pass_is_explained(ours: GateVerdict, words: tuple[str, ...]) -> None:
    """Causes are ordered: loop's finding, looser rules of the evaluator, oddities of the task."""
    causes = explain_disagreement(task(hints=("task.yml:9: an odd value",)), ours, Verdict(status="right"))
    assert len(causes) >= len(words)
    for word, cause in zip(words, causes, strict=False):
        assert word in cause


def test_what_only_they_reject_is_explained() -> None:
    """Causes are the reference's own type, casts before the call, and a narrower rule."""
    causes = explain_disagreement(task(dtypes=("int64",)), GateVerdict("right"), Verdict(status="wrong"))
    assert any("its own type" in cause for cause in causes)
    assert any("cast whole numbers" in cause for cause in causes)
    assert any("the larger of atol and rtol" in cause for cause in causes)
