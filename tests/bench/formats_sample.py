"""The sample of real tasks that `formats_judged` judges: drawn from a seed, and committed before any result."""

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loop.formats import table
from loop.formats.model import ForeignTask
from tests.bench.formats import CHECKOUTS, commit_of, tasks_below
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
        found = [one for one in tasks_below(checkout / inside, form) if isinstance(one, ForeignTask)]
        names = {str(one.path.relative_to(checkout)): one for one in found}
        if option == "kernelbench":
            levels = sorted(name for name in names if "level4" not in name)
            cpu, cuda = chance.sample(levels, 40), chance.sample(levels, 24)
            audited = {"cpu": cpu[:8], "cuda": cuda[:8]}
        elif option == "gpumode":
            shipped = [name for name in sorted(names) if "pmpp_v2" in name and shipped_in(checkout / name)]
            cpu, cuda = [], chance.sample(shipped, 6)
            audited = {"cpu": [], "cuda": sorted(shipped)[:8]}
        else:
            here = [one for one in sorted(names) if "tests/" not in one]
            cpu = cuda = here
            audited = {"cpu": here[:8], "cuda": here[:8]}
        drawn[option] = {"cpu": cpu, "cuda": cuda, "audited": audited}
    return drawn


def shipped_in(task: Path) -> list[Path]:
    """Answers that lie beside a task: what its folder or its format calls a solution."""
    found = [*task.glob("solutions/*/*.py"), *task.glob("solution*.json")] if task.is_dir() else []
    return sorted(one for one in found if one.name != "__init__.py")


def pack(checkouts: Mapping[str, Path], drawn: Mapping[str, Any], folder: Path) -> None:
    """Copy what the sample's tasks need, with the commit; each checkout has its folder."""
    for option, checkout in checkouts.items():
        names = {name for some in (drawn[option], drawn[option]["audited"]) for on in DEVICES for name in some[on]}
        tasks = [table.load(checkout / name) for name in names]
        files = {file for task in tasks for file in task.files}
        files |= {one for name in names for one in shipped_in(checkout / name)}
        files |= {one for inside in EVALUATORS[option] for one in (checkout / inside).rglob("*") if one.is_file()}
        for file in files:
            if file.suffix != ".pyc":
                (place := folder / option / file.relative_to(checkout)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
        (folder / option / "COMMIT").write_text(commit_of(checkout))
