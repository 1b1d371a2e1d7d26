"""Small projects of a user: a kernel of ten lines, and plans that only run commands."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from loop.base.places import shipped
from loop.cli import app

LOOP = [sys.executable, "-c", "from loop.cli import main; main()"]

TARGET = """
format: 2
name: scaling
function: scale
signature:
  inputs: {x: N M}
  outputs: {output: N M}
  attributes: {factor: {kind: number, default: 2.0}}
reference: {python: "functions:scale"}
baseline: {python: "functions:scale"}
tolerance: {float32: {atol: 1.0e-6, rtol: 1.0e-6}}
dtypes: {cpu: float32, cuda: float32}
workloads:
  small: [{N: 3, M: [5, 17]}]
variants:
  ours: {kind: c_abi, device: cpu, sources: [scale.c], entry: scale, build: {compiler: gcc, flags: [-O1]}}
"""

FUNCTIONS = """
def scale(x, *, factor):
    return x * factor
"""

KERNEL = """
#include "loop_kernel.h"
LOOP_EXPORT const char *loop_error(int error) { return error == 1 ? "not contiguous float32" : "unknown"; }
LOOP_EXPORT int scale(const LoopTensor *in, LoopTensor *out, const double *attributes, void *stream) {
  (void)stream;
  if (in[0].dtype != LOOP_FLOAT32 || in[0].strides[0] != in[0].sizes[1]) return 1;
  const int64_t n = in[0].sizes[0] * in[0].sizes[1];
  const float *x = in[0].data;
  float *y = out[0].data;
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * (float)attributes[0];
  return 0;
}
"""

PLAN = """
format: 1
name: {name}
title: Try things
patterns: [{patterns}]
workloads: [small]
budget: {{minutes: 1}}
"""

PATTERN = """
format: 1
name: {name}
number: {number}
title: A pattern of commands
problem: Something has to be tried.
use_when: [testing]
estimate: {{minutes: 0.1}}
steps:
{steps}
"""


def make_project(folder: Path, kernel: str = KERNEL) -> Path:
    """A target with one compiled variant; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "target.yaml").write_text(TARGET)
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "scale.c").write_text(kernel)
    return folder


def add_commands(folder: Path, name: str, commands: Sequence[str], number: int = 100) -> None:
    """Add a pattern whose steps run shell commands, and a plan of the same name."""
    steps = "\n".join(
        f"  - {{id: s{i}, title: step {i}, action: command.run, budget_s: 5, with: {{run: {command!r}}}}}"
        for i, command in enumerate(commands, start=1)
    )
    for kind in ("patterns", "plans"):
        (folder / kind).mkdir(exist_ok=True)
    (folder / "patterns" / f"{name}.yaml").write_text(PATTERN.format(name=name, number=number, steps=steps))
    (folder / "plans" / f"{name}.yaml").write_text(PLAN.format(name=name, patterns=name))


def add_quick_plan(folder: Path) -> None:
    """Add a plan `mine` that verifies, measures and compares like the bundled pattern, with fewer rounds."""
    for kind in ("plans", "patterns"):
        (folder / kind).mkdir(exist_ok=True)
    (folder / "plans" / "mine.yaml").write_text(
        "format: 1\nname: mine\ntitle: Verify and measure\npatterns: [single-compilation-unit, baseline-quickly]\n"
        "workloads: [small]\nbudget: {minutes: 1}\n"
    )
    text = (shipped("patterns") / "baseline-first.yaml").read_text().replace("baseline-first", "baseline-quickly")
    text = text.replace("number: 1\n", "number: 101\n").replace("{rounds: 9}", "{rounds: 2}")
    text = text.replace("budget_s: 12", "budget_s: 5").replace("budget_s: 8", "budget_s: 2")
    (folder / "patterns" / "baseline-quickly.yaml").write_text(text)


def loop(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own."""
    env = {**os.environ, **environment}
    return subprocess.run([*LOOP, *words], capture_output=True, text=True, env=env, check=False, timeout=120)


def here(*words: str) -> tuple[int, str]:
    """Exit code and output of a command in this process."""
    result = CliRunner().invoke(app, list(words))
    error = result.exception
    code = getattr(error, "exit_code", result.exit_code)
    texts = " ".join(str(getattr(error, name, "") or "") for name in ("message", "hint"))
    assert error is None or isinstance(error, SystemExit) or hasattr(error, "exit_code"), repr(error)
    return code, f"{result.output} {texts} {error}"


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a command, as a system out of memory would."""
    process.kill()
    process.communicate(timeout=20)


def start(*words: str) -> subprocess.Popen[str]:
    """Start the program and leave it running."""
    pipe = subprocess.PIPE
    return subprocess.Popen([*LOOP, *words], stdout=pipe, stderr=pipe, text=True, env=dict(os.environ))
