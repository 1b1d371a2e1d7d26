"""What the rule that a format states says of answers: our end of the program that applies it."""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.errors import WorkFailed
from loop.base.processes import finish, python_path, run
from loop.formats import flashinfer, gpumode, kernelbench
from loop.formats.hindrances import Here, hindrances, installed, runs
from loop.formats.model import ForeignTask
from loop.formats.theirs import Verdict, few
from loop.machine.gpus import gpus
from loop.machine.machine import available_memory
from loop.model.dtypes import Device
from loop.model.target import PythonVariant
from loop.model.workloads import expand
from loop.steps.setting import Setting
from loop.workers.judge_process import UNTIMED
from loop.workers.program import within
from loop.workers.workload_call import generator_parameters

TRIALS = {kernelbench.NAME: 5, gpumode.NAME: 1, flashinfer.TRACE: 3, flashinfer.SOL: 10}
"""Sets of inputs for each case that the format states."""
MOST_CASES = 8
"""Cases on which controls are tried: by us, by the stated rule and, in FlashInfer Trace, by the evaluator."""


class Stated:
    """The program that looks at the task, and applies the rule that the format states."""

    def __init__(self, task: ForeignTask, setting: Setting, device: Device, threads: int, limit_s: float) -> None:
        """`limit_s`: for each answer."""
        self.task, self.target, self.project = task, setting.target, setting.project
        self.device, self.threads, self.limit_s = device, threads, limit_s

    def look(self) -> dict[str, Any]:
        """Shapes of inputs and outputs, and what is odd about the task itself."""
        return self._run({})

    def verdicts(self, names: Sequence[str]) -> dict[str, Verdict]:
        """By the names of answers: right or wrong by the stated rule; the result is whether nothing differed."""
        functions = {}
        for name in names:
            variant = self.target.variants[name]
            if isinstance(variant, PythonVariant):
                functions[name] = f"{variant.module}:{variant.function}"
        return {
            name: Verdict(status=answer["status"], why=answer["why"], result=answer.get("same", False))
            for name, answer in self._run(functions)["verdicts"].items()
        }

    def _run(self, answers: Mapping[str, str]) -> dict[str, Any]:
        """What the program says. Raises WorkFailed where it gives nothing."""
        scratch = Path(tempfile.mkdtemp(prefix="loop-audit-"))
        try:
            terms, result = scratch / "terms.json", scratch / "result.json"
            terms.write_text(json.dumps(self._terms(answers)))
            command = (sys.executable, "-m", "loop.workers.stated", str(terms), str(result))
            path = {"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1", **UNTIMED, **within(self.device)}
            limit = self.limit_s * max(len(answers), 1)
            done = finish(run(command, limit_s=limit, cwd=scratch, env=path, note="stated rule"))
            if not result.is_file():
                last = (done.errors.strip().splitlines() or [done.how])[-1]
                raise WorkFailed(f"{self.task.path}: its inputs or its reference: {last}")
            return json.loads(result.read_text())  # type: ignore[no-any-return]
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _terms(self, answers: Mapping[str, str]) -> dict[str, Any]:
        target, judging = self.target, self.task.judging
        generator, modules, checker = target.generator, target.modules, target.checker
        assert generator is not None
        return {
            "folder": str(self.project.target),
            "device": self.device,
            "threads": self.threads,
            "generator": generator.python,
            "passes": generator.passes,
            "reference": target.reference.python,
            "is_class": modules is not None,
            "arguments": modules.arguments.python if modules and modules.arguments else None,
            "checker": checker.python if checker else None,
            "given": checker.given if checker else (),
            "cases": self._cases(),
            "trials": TRIALS[self.task.format],
            **{name: getattr(judging, name) for name in ("atol", "rtol", "cap", "either")},
            "matched": judging.matched_ratio,
            "strict": self.task.format == flashinfer.SOL,
            "finite": self.task.format in (flashinfer.SOL, flashinfer.TRACE),
            "nan": self.task.format == gpumode.NAME,
            "limit_s": self.limit_s,
            "answers": dict(answers),
        }

    def _cases(self) -> list[dict[str, Any]]:
        """Cases that run here, with what the generator is given; GPU MODE's have seeds of their own."""
        if self.task.format == gpumode.NAME:
            here = Here(tuple(gpu.name for gpu in gpus().usable), available_memory(), installed)
            able = runs(self.task, hindrances(self.task, here))
            cases = [case for case in few(able, MOST_CASES) if "check" in case.use]
            return [{"name": case.name, "given": case.arguments} for case in cases]
        target = self.target
        workloads = expand(target, target.workloads, target.dtypes[self.device])
        return [{"name": load.name, "given": generator_parameters(load)} for load in few(workloads, MOST_CASES)]
