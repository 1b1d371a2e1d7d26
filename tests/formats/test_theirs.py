"""A format's own evaluator runs in its own process, and its result is stored unchanged."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.formats import table
from loop.formats.theirs import ForeignAnswer, Verdict, run_evaluator
from tests.formats import tasks

EVALUATOR = """import os
import sys


def main(mode, cases):
    import reference
    import submission

    log = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
    right = True
    for number, line in enumerate(open(cases)):
        case = dict(part.split(": ") for part in line.strip().split("; "))
        data = reference.generate_input(**{name: int(value) for name, value in case.items()})
        fits = submission.custom_kernel(list(data)) == reference.ref_kernel(data)
        print(f"{mode}.{number}.status: {'pass' if fits else 'fail'}", file=log)
        if not fits:
            print(f"{mode}.{number}.error: mismatch", file=log)
        right = right and fits
    print(f"check: {'pass' if right else 'fail'}", file=log)
    log.close()
    return 0 if right else 112


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
"""
REFERENCE = """def generate_input(size, seed):
    return [seed + one for one in range(size)]


def ref_kernel(data):
    return [2 * one for one in data]


def check_implementation(data, output):
    return output == ref_kernel(data)
"""
RIGHT = "def custom_kernel(data):\n    return [one + one for one in data]\n"
TORCH = """float32 = 'float32'


class cuda:
    @staticmethod
    def is_available():
        return False
"""
"""A stand-in for torch, because importing the real one takes seconds."""
DRIVEN = """from pydantic import BaseModel


class Result(BaseModel):
    compiled: bool = True
    correctness: bool
    metadata: dict = {}
    runtime: float = 2.0
    ref_runtime: float = 3.0


def eval_kernel_against_ref(reference, candidate, **more):
    return Result(correctness="wrong" not in candidate, metadata={"trials": more["num_correct_trials"]})
"""


@pytest.fixture
def gpumode(tmp_path: Path) -> ForeignAnswer:
    """A task whose judging program needs no GPU, and a right answer."""
    task = tasks.gpumode(tmp_path, reference=REFERENCE)
    (tmp_path / "eval.py").write_text(EVALUATOR)
    answer = tmp_path / "mine.py"
    answer.write_text(RIGHT)
    return ForeignAnswer(table.load_task(task), answer, None)


def ask(question: ForeignAnswer) -> Verdict:
    return run_to_end(run_evaluator(question))


@pytest.mark.parametrize(("text", "timed"), [("", "benchmark"), ("recheck = True\n", "leaderboard")])
def test_gpumode_tests_then_times(gpumode: ForeignAnswer, text: str, timed: str) -> None:
    """Results of both runs are stored; the ranked mode is timed if it checks what it times."""
    judge = gpumode.task.path.parent / "eval.py"
    judge.write_text(judge.read_text() + text)
    verdict = ask(replace(gpumode, task=table.load_task(gpumode.task.path)))
    assert "right" == verdict.status, verdict
    assert {"test": {"test.0.status", "test.1.status", "check"}, timed: {f"{timed}.0.status", "check"}} == {
        mode: set(results) for mode, results in verdict.result.items()
    }


def test_an_evaluator_that_breaks_off_says_nothing_of_the_answer(gpumode: ForeignAnswer) -> None:
    """If its own checker raises, there is no verdict."""
    files = {path.name: path for path in gpumode.task.files}
    files["reference.py"].write_text(
        REFERENCE.replace("return [2 * one", "raise KeyError('table')\n    return [2 * one")
    )
    files["eval.py"].write_text(
        EVALUATOR.replace("    right = True", "    print('test-count: 2', file=log, flush=True)")
    )
    verdict = ask(gpumode)
    assert ("failed", True) == (verdict.status, "KeyError: 'table'" in verdict.why)


@pytest.mark.parametrize(
    ("line", "status", "why"),
    [
        ("raise SystemExit(3)", "failed", "its evaluator gave no result: exit 3"),
        ("import not_there", "not available", "its evaluator needs the Python package not_there"),
        ("open('reference.py', 'a').write('#')", "tampered", "reference.py"),
        ("open('eval.py', 'a').write('#')", "tampered", "eval.py"),
    ],
)
def test_an_answer_that_ends_or_edits_its_judge(line: str, status: str, why: str, gpumode: ForeignAnswer) -> None:
    """Without a result, or with edited files, there is no verdict."""
    gpumode.answer.write_text(f"{line}\n{RIGHT}")
    verdict = ask(gpumode)
    assert status == verdict.status
    assert why in verdict.why


def test_kernelbench_is_asked_in_its_own_words(tmp_path: Path) -> None:
    """Its result is stored verbatim; the speed-up is the one that it measured."""
    source = tmp_path / "checkout/src/kernelbench"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    (source.parent / "torch.py").write_text(TORCH)
    (source / "eval.py").write_text(DRIVEN)
    answer = tmp_path / "answer.py"
    answer.write_text(tasks.ANSWER)
    kernelbench = ForeignAnswer(
        table.load_task(tasks.kernelbench(tmp_path)), answer, tmp_path / "checkout", has_gpu=True
    )
    verdict = ask(kernelbench)
    assert ("right", 1.5) == (verdict.status, verdict.speedup), verdict
    assert {"trials": 5} == verdict.result["metadata"]


TRACED = """import json
import pathlib
import sys


def cli():
    words = sys.argv
    {find}
    text = answer.read_text()
    status = "PASSED" if "x + x" in text else "INCORRECT_NUMERICAL"
    performance = {{"speedup_factor": 2.0}}
    line = json.dumps({{"evaluation": {{"status": status, "performance": performance}}}})
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(line + "\\n" + line + "\\n")
    sys.exit(status != "PASSED")
"""
FIND_SOL = """answer = pathlib.Path(words[words.index("--solution") + 1])
    out = pathlib.Path(words[words.index("-o") + 1])"""
FIND_TRACE = """root = pathlib.Path(words[words.index("--local") + 1])
    (answer,) = (root / "solutions").glob("*.json")
    assert list((root / "definitions").rglob("*.json")) and list((root / "workloads").rglob("*.jsonl"))
    out = root / 'traces/double_n.jsonl'"""


def traced(folder: Path, dialect: str) -> ForeignAnswer:
    """A task of either dialect, a checkout with an evaluator of the expected name, and a solution."""
    if dialect == "sol-execbench":
        task, package, module, find = tasks.sol(folder), "src/sol_execbench", "cli/__init__.py", FIND_SOL
    else:
        task, package, module, find = tasks.trace(folder), "flashinfer_bench", "cli/main.py", FIND_TRACE
    file = folder / "checkout" / package / module
    file.parent.mkdir(parents=True)
    file.write_text(TRACED.format(find=find))
    answer = folder / "answer.json"
    answer.write_text(json.dumps(tasks.SOLUTION))
    return ForeignAnswer(table.load_task(task), answer, folder / "checkout", has_gpu=True)


@pytest.mark.parametrize("dialect", ["sol-execbench", "flashinfer-trace"])
def test_traces_of_every_workload_count(dialect: str, tmp_path: Path) -> None:
    """An answer is right if all workloads pass; the speed-up is their geometric mean."""
    question = traced(tmp_path, dialect)
    files = sorted(path for path in question.task.path.parent.rglob("*"))
    verdict = ask(question)
    assert ("right", 2) == (verdict.status, len(verdict.result)), verdict
    assert 2.0 == pytest.approx(verdict.speedup)
    question.answer.write_text(json.dumps(tasks.SOLUTION).replace("x + x", "x"))
    verdict = ask(question)
    assert ("wrong", "2 of 2 workloads: INCORRECT_NUMERICAL") == (verdict.status, verdict.why)
    assert files == sorted(path for path in question.task.path.parent.rglob("*"))
