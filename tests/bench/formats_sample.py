"""The sample of real tasks that `formats_judged` judges: drawn from a seed, and committed before any result."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loop.formats.model import ForeignTask
from tests.bench.formats import CHECKOUTS, tasks_below
from tests.bench.formats_verdicts import SAMPLE

SEED = 20_261_123
DEVICES = ("cpu", "cuda")
EVALUATORS = {
    "kernelbench": ("src/kernelbench",),
    "gpumode": (),
    "flashinfer": ("flashinfer_bench",),
    "sol": ("src/sol_execbench",),
}
"""Option to the folders of its checkout that hold the evaluator."""


def sample() -> dict[str, Any]:
    """Option to device to the names of tasks; `audited`: those that get every mistake."""
    return json.loads(SAMPLE.read_text())  # type: ignore[no-any-return]


def draw(checkouts: Mapping[str, Path]) -> dict[str, Any]:
    """The sample: of KernelBench 40 tasks for a CPU and 24 for a GPU, of GPU MODE six, else all examples."""
    drawn: dict[str, Any] = {"seed": SEED}
    for option, checkout in checkouts.items():
        chance = random.Random(SEED)
        _, inside, form = CHECKOUTS[option]
        tasks = [task for task in tasks_below(checkout / inside, form) if isinstance(task, ForeignTask)]
        names = {str(task.path.relative_to(checkout)): task for task in tasks}
        if option == "kernelbench":
            levels = sorted(name for name in names if "level4" not in name)
            cpu, cuda = chance.sample(levels, 40), chance.sample(levels, 24)
            audited = {"cpu": cpu[:8], "cuda": cuda[:8]}
        elif option == "gpumode":
            shipped = [name for name in sorted(names) if "pmpp_v2" in name and shipped_in(checkout / name)]
            cpu, cuda = [], chance.sample(shipped, 6)
            audited = {"cpu": [], "cuda": sorted(shipped)[:8]}
        else:
            examples = [name for name in sorted(names) if "tests/" not in name]
            cpu = cuda = examples
            audited = {"cpu": examples[:8], "cuda": examples[:8]}
        drawn[option] = {"cpu": cpu, "cuda": cuda, "audited": audited}
    return drawn


def shipped_in(task: Path) -> list[Path]:
    """Answers that ship with a task: solutions by the rules of its folder or format."""
    paths = [*task.glob("solutions/*/*.py"), *task.glob("solution*.json")] if task.is_dir() else []
    return sorted(path for path in paths if path.name != "__init__.py")
