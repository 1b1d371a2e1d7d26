"""Solutions in C++ and CUDA: built by loop behind a translation unit of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loop.cli import app
from loop.formats.table import write_as_target
from loop.model.target import CAbiVariant
from tests.formats import tasks
from tests.formats.test_translated import read

RETURNS = """#include <torch/extension.h>
torch::Tensor run(const torch::Tensor &x) { return x + x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def solution(folder: Path, content: str = RETURNS, **spec: Any) -> Path:
    """A solution's file, by default one that returns its output."""
    more = {
        "language": "cpp",
        "binding": "torch",
        "entry_point": "main.cpp::run",
        "destination_passing_style": False,
    }
    sources = [{"path": "main.cpp", "content": content}, {"path": "more.cpp", "content": "// nothing\n"}]
    described = {**tasks.SOLUTION, "spec": {**tasks.SOLUTION["spec"], **more, **spec}, "sources": sources}  # type: ignore[dict-item]
    path = folder / "compiled.json"
    path.write_text(json.dumps(described))
    return path


def made(folder: Path, **spec: Any) -> tuple[CAbiVariant, str]:
    """The variant, and the translation unit that calls it."""
    target, _ = write_as_target(tasks.trace(folder), [str(solution(folder, **spec))])
    variant = read(target).variants["compiled"]
    assert isinstance(variant, CAbiVariant)
    return variant, (target / variant.sources[0]).read_text()


def test_it_is_built_with_its_other_sources(tmp_path: Path) -> None:
    """Against the headers and libraries of torch."""
    variant, unit = made(tmp_path)
    assert ("cpu", "g++") == (variant.device, variant.build.compiler)
    assert ("answers/compiled/loop_unit.cpp", "answers/compiled/more.cpp") == variant.sources
    assert {"-ltorch", "-Ianswers/compiled"} < set(variant.build.flags)
    assert '#include "main.cpp"' in unit
    assert "loop_made::keep(outputs, run(in_x));" in unit


def test_cuda_runs_on_the_stream_that_it_is_given(tmp_path: Path) -> None:
    """Built by nvcc for the GPU at hand."""
    variant, unit = made(tmp_path, language="cuda")
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
