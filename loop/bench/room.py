"""The bench of one session: its target, its scratch folder, and the warm judge."""

import os
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from loop.bench.call import Call, make_call
from loop.bench.worker import START_LIMIT_S, Refusal, Worker, WorkerLost
from loop.errors import LoopError
from loop.model.measurement import Build
from loop.model.target import (
    ITEM_SIZES,
    CAbiVariant,
    Device,
    Dtype,
    PythonVariant,
    Target,
    Workload,
)
from loop.processes import Tick

JUDGE_LIMIT_S = 120.0
SCRATCH = "loop-bench-"
BASELINE = "baseline"
"""Name of the side that stands for the target's baseline."""


@dataclass(frozen=True)
class Side:
    """Something that computes the target's function: a variant with its build, or the baseline."""

    name: str
    terms: dict[str, Any]
    """What a worker needs to load it."""
    dtypes: tuple[Dtype, ...]
    deterministic: bool
    build_id: str | None


@dataclass
class Bench:
    """Where kernels are built, verified and timed. Use as a context manager: it ends its workers."""

    target: Target
    folder: Path
    """Folder of the manifest."""
    cache: Path
    """Folder of finished builds."""
    include: Path
    """Folder of loop_kernel.h."""
    device: Device
    threads: int
    scratch: Path = field(default_factory=lambda: new_scratch())
    _examiner: Worker | None = None
    _judging: bool = False
    _expected: dict[str, int] = field(default_factory=dict)
    """Workload to the seed of the inputs that lie in the scratch folder."""

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def dismiss(self) -> None:
        """End the warm worker; the next request starts a new one."""
        if self._examiner is not None:
            self._examiner.close()
        self._examiner, self._judging = None, False
        self._expected.clear()

    def examine(self, check: str, limit_s: float) -> Generator[Tick, None, dict[str, Any]]:
        """One check of the environment, in the process that will judge. Raises LoopError when it dies."""
        return (yield from self._ask("examine", limit_s, f"checking {check}", check=check))

    def judge(self, do: str, limit_s: float, note: str, **fields: Any) -> Generator[Tick, None, dict[str, Any]]:
        """A request to the judge, which is started when there is none."""
        if not self._judging:
            yield from self._ask("start_judge", START_LIMIT_S, "importing torch", **self._judge_terms())
            self._judging = True
        return (yield from self._ask(do, limit_s, note, **fields))

    def _judge_terms(self) -> dict[str, Any]:
        target = self.target
        return {
            "folder": str(self.folder),
            "reference": target.reference.python,
            "plain": target.plain.python if target.plain else None,
            "tolerance": {dtype: t.model_dump() for dtype, t in target.tolerance.items()},
            "dimensions": target.signature.output.split(),
        }

    def _ask(self, do: str, limit_s: float, note: str, **fields: Any) -> Generator[Tick, None, dict[str, Any]]:
        worker = self.warm_up()
        try:
            request = {"threads": self.threads, "device": self.device, **fields}
            return (yield from worker.ask(do, limit_s=limit_s, note=note, **request))
        except WorkerLost as lost:
            self.dismiss()
            raise LoopError(
                f"the judging process was lost: {lost.how}", hint=_last_line(lost.errors), exit_code=1
            ) from lost
        except Refusal as refusal:
            raise LoopError(str(refusal), hint="see `loop doctor`", exit_code=1) from refusal

    def warm_up(self) -> Worker:
        """The warm worker, started now if there is none; its imports go on while something else is done."""
        if self._examiner is None:
            self._examiner = Worker(self.threads)
        return self._examiner

    def call(self, workload: Workload, reader: str) -> Call:
        """The call of a workload, its files in the scratch folder."""
        return make_call(self.target.signature, workload, str(self.scratch), reader)

    def side(self, name: str, build: Build | None = None) -> Side:
        """A variant by name, with its build when it is compiled; `baseline` is the target's baseline."""
        if name == BASELINE:
            terms = {"kind": "python", "python": self.target.baseline.python}
            return Side(name, terms, tuple(ITEM_SIZES), deterministic=False, build_id=None)
        variant = self.target.variants[name]
        terms = variant.model_dump(mode="json")
        if isinstance(variant, PythonVariant):
            terms["python"] = f"{variant.module}:{variant.function}"
        if build is not None:
            terms |= {"library": build.library, "build_id": build.build_id}
        return Side(name, terms, variant.dtypes, variant.deterministic, build.build_id if build else None)

    def open(self, side: Side) -> Worker:
        """A fresh worker that was asked to load `side`; the reply is still to be received."""
        worker = Worker(self.threads, pinned=True)
        terms = {"folder": str(self.folder), "threads": self.threads, "device": self.device}
        worker.send("load", variant=side.terms, **terms)
        return worker

    def expect(self, workload: Workload) -> Generator[Tick, None, None]:
        """Have the judge write a workload's inputs and work out its right answer, once a seed."""
        if self._expected.get(workload.name) == workload.seed:
            return
        yield from self.judge(
            "expect",
            JUDGE_LIMIT_S,
            f"reference of {workload.name}",
            call=self.call(workload, "judge").to_json(),
            values=workload.values,
            seed=workload.seed,
        )
        self._expected[workload.name] = workload.seed

    def compiled(self, names: tuple[str, ...]) -> dict[str, CAbiVariant]:
        """Those of the named variants that have to be built."""
        chosen = {name: self.target.variants[name] for name in names}
        return {name: variant for name, variant in chosen.items() if isinstance(variant, CAbiVariant)}


def new_scratch() -> Path:
    """A folder for tensors, named by our process; those of processes that were killed are removed."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{SCRATCH}*-*"):
        owner = left.name.removeprefix(SCRATCH).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))


def _last_line(text: str) -> str | None:
    lines = text.strip().splitlines()
    return lines[-1] if lines else None
