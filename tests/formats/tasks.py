"""Small tasks of our own in the shape of each format."""

import json
from pathlib import Path

KERNELBENCH = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Scales each row."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * self.weight


rows = 2 * 4
features = 16


def get_inputs():
    x = torch.rand(rows, features)
    return [x]


def get_init_inputs():
    return [features]
'''
ANSWER = KERNELBENCH.replace("class Model(", "class ModelNew(").replace("torch.relu(x)", "x.clamp(min=0)")
TASK_YML = """files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: ../eval.py}
lang: py
description: Doubles a vector.
config: {main: eval.py}
tests:
  - {size: 7, seed: 1}
  - {size: 8, seed: 2}
benchmarks:
  - {size: 1024, seed: 3}
ranking_by: geom
"""
REFERENCE = """import torch
from utils import make_match_reference


def generate_input(size: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator)


def ref_kernel(data):
    return 2 * data


check_implementation = make_match_reference(ref_kernel, rtol=1e-4, atol=1e-5)
"""
EVALUATOR = """import reference


def main():
    from submission import custom_kernel

    clear_l2_cache()
    data = reference.generate_input(1, 2)
    reference.check_implementation(data, custom_kernel(data))
"""
DEFINITION = {
    "name": "double_n",
    "op_type": "elementwise",
    "axes": {"N": {"type": "var"}, "M": {"type": "const", "value": 4}},
    "inputs": {"x": {"shape": ["N", "M"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["N", "M"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(x):\n    return 2 * x\n",
}
WORKLOADS = [
    {"uuid": name, "axes": {"N": size}, "inputs": {"x": {"type": "random"}}} for name, size in (("a", 3), ("b", 5))
]
SOLUTION = {
    "name": "mine",
    "definition": "double_n",
    "author": "me",
    "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"},
    "sources": [{"path": "main.py", "content": "def run(x, y):\n    y.copy_(x + x)\n"}],
}


def kernelbench(folder: Path, text: str = KERNELBENCH) -> Path:
    """A task of one file."""
    path = folder / "1_Scale.py"
    path.write_text(text)
    return path


def gpumode(folder: Path, manifest: str = TASK_YML, reference: str = REFERENCE) -> Path:
    """A task's folder, with the judging program beside it."""
    task = folder / "double_py"
    task.mkdir(parents=True)
    (task / "task.yml").write_text(manifest)
    (task / "task.py").write_text("input_t = output_t = object\n")
    (task / "reference.py").write_text(reference)
    (folder / "eval.py").write_text(EVALUATOR)
    return task


def sol(folder: Path, **changes: object) -> Path:
    """A problem's folder."""
    task = folder / "double"
    task.mkdir()
    (task / "definition.json").write_text(json.dumps({**DEFINITION, **changes}, indent=2))
    (task / "workload.jsonl").write_text("".join(json.dumps(workload) + "\n" for workload in WORKLOADS))
    return task


def trace(folder: Path) -> Path:
    """A definition, its workloads and a solution."""
    files = {
        "definitions/elementwise/double_n.json": json.dumps(DEFINITION),
        "workloads/elementwise/double_n.jsonl": "".join(
            json.dumps({"definition": "double_n", "workload": case, "solution": None, "evaluation": None}) + "\n"
            for case in WORKLOADS
        ),
        "solutions/mine.json": json.dumps(SOLUTION),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "definitions/elementwise/double_n.json"
