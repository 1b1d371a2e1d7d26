"""Tasks that are judged by commands of their own: kernelbench.com hard and AgentKernelArena."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from loop.base.documents import Document, complain, load_yaml, parse
from loop.base.errors import DefinitionError
from loop.base.processes import Completed
from loop.formats import python_text
from loop.formats.model import FLOATS, Case, ForeignTask, Judging, Tensor, Timing
from loop.formats.python_text import Tensors, Unknown
from loop.formats.target import ANSWERS, Made, tolerance, variant, variants
from loop.formats.theirs import Asked, Step, Verdict
from loop.model.base import Model

HARD, ARENA = "kernelbench-hard", "agent-kernel-arena"
PROBLEM, CONFIG = "problem.yaml", "config.yaml"
HARD_FILES = ("reference.py", "shapes.py", "check.py", "benchmark.py")
ARENA_KEYS = ("task_type:", "correctness_command:")
Paths = tuple[str, ...]
PHASES = ("compile", "correctness", "performance")
TELLS = 'result=$1; shift; "$@" > "$result" 2>&1; code=$?; echo "exit $code" >> "$result"; exit $code'
"""Runs a command, and keeps what it prints and how it ends, word for word."""
AT_FIRST_SHAPE = '''"""Made by loop: the problem's reference at its first shape."""

import reference
import shapes

for name, size in shapes.SHAPES[0].items():
    setattr(reference, name, size)
Model, inputs, arguments = reference.Model, reference.get_inputs, reference.get_init_inputs
'''


class Problem(Model):
    """`problem.yaml` of kernelbench.com hard."""

    name: str
    """Its name."""
    display_name: str = ""
    """The same for a page."""
    precision: str
    """Element type of its operands."""
    regime: Literal["compute", "memory"]
    """What bounds it."""
    flops_formula: str
    """Operations of one call, over a shape's names."""
    bytes_formula: str
    """Bytes that one call moves, over a shape's names."""
    hardware: Paths
    """GPUs it is made for."""
    peak_tflops_key: str
    """Which peak of the GPU counts."""
    peak_bandwidth_key: str = "dram"
    """Which bandwidth of the GPU counts."""
    tolerance: dict[str, float] = Field(default_factory=dict)
    """Element type to the error that is allowed."""
    forbidden: Paths = ()
    """Words that an answer may not contain."""
    sota: dict[str, Any] = Field(default_factory=dict)
    """The best that is known."""
    num_correct_trials: int = 3
    """Seeds."""
    num_perf_trials: int = 30
    """Timed calls."""


class Arena(Model):
    """`config.yaml` of an AgentKernelArena task."""

    task_type: str
    """From what to what, as in `triton2triton`."""
    compile_command: Paths
    """Builds it."""
    correctness_command: Paths
    """Checks it."""
    performance_command: Paths
    """Times it."""
    source_file_path: Paths = ()
    """Files that an answer changes."""
    target_kernel_functions: Paths = ()
    """Kernels that it is about."""
    target_file_path: str | None = None
    """The file that an answer writes."""
    harness_path: str | None = None
    """The judging program."""
    repo_url: str | None = None
    """A repository that is cloned first."""
    repository_language: str | None = None
    """What the repository is written in."""
    repo_subdir: str | None = None
    """The part of it that counts."""
    post_clone_install: tuple[Any, ...] = ()
    """What is installed after cloning."""
    post_clone_install_mode: str | None = None
    """How."""
    editable_sources: Paths = ()
    """Files that may be edited."""
    image_repo_path: str | None = None
    """Where the repository is in a container."""
    image_repo_exclude: Paths = ()
    """What is left out of it."""
    aiter_commit: str | None = None
    """A commit that it needs."""
    kernel_identity: dict[str, Any] = Field(default_factory=dict)
    """By what the kernel is known."""
    source_origin: dict[str, Any] = Field(default_factory=dict)
    """Where the source comes from."""
    platform_support: dict[str, Any] = Field(default_factory=dict)
    """Hardware and state."""
    supported_archs: Paths = ()
    """GPU architectures it runs on."""
    prompt: dict[str, Any] = Field(default_factory=dict)
    """What an agent is told."""
    task_result_template: str | None = None
    """How a result is written."""
    compile_timeout: int | None = None
    """Seconds."""
    correctness_timeout: int | None = None
    """Seconds."""
    performance_timeout: int | None = None
    """Seconds."""

    @property
    def answer(self) -> str:
        """The file that an answer takes the place of, from the task's folder; empty where none is named."""
        return self.target_file_path or next(iter(self.source_file_path), "")


def claims_hard(path: Path) -> str | None:
    """Why a path looks like a problem of kernelbench.com hard."""
    folder = path.parent if path.name == PROBLEM else path
    there = (folder / PROBLEM).is_file() and any((folder / one).is_file() for one in HARD_FILES)
    return f"it has a {PROBLEM} and a judging program" if there else None


def claims_arena(path: Path) -> str | None:
    """Why a path looks like a task of AgentKernelArena."""
    file = path if path.name == CONFIG else path / CONFIG
    if not file.is_file() or file.stat().st_size > python_text.MOST_BYTES:
        return None
    text = file.read_text(errors="replace")
    return f"its {CONFIG} names commands" if all(key in text for key in ARENA_KEYS) else None


def load_hard(path: Path, why: str) -> ForeignTask:
    """Read one problem. Raises DefinitionError with the line of what is wrong or missing."""
    folder = path.parent if path.name == PROBLEM else path
    problem = parse(Problem, load_yaml(folder / PROBLEM))
    for name in HARD_FILES:
        if not (folder / name).is_file():
            raise python_text.mistake(folder / name, "a file that the format asks for", "none")
    reference, shapes, check = (python_text.read_module(folder / name) for name in HARD_FILES[:3])
    if missing := [one for one in ("Model", "get_inputs", "get_init_inputs") if not reference.defines(one)]:
        raise python_text.mistake(reference.path, f"`{missing[0]}`", "a file without it")
    cases = tuple(_cases(reference, shapes))
    types = dict.fromkeys(one.dtype for case in cases for one in case.inputs or ())
    loosest = max(problem.tolerance.values(), default=None)
    return ForeignTask(
        format=HARD,
        why=why,
        name=problem.name,
        path=folder,
        files=tuple(folder / name for name in (PROBLEM, *HARD_FILES)),
        entry="class Model in solution.py, with the reference's state_dict",
        languages=("python", "triton", "cuda"),
        reference="reference.Model",
        cases=cases,
        dtypes=tuple(types),
        judging=Judging(
            atol=loosest, rtol=loosest, checker="check.py", note="seeds 42, 123 and 456, and extreme values"
        ),
        timing=Timing(
            method=f"10 calls to warm up, median of {problem.num_perf_trials}",
            cold_cache=True,
            fresh_inputs=False,
            checked=False,
            score="geometric mean of the share of the GPU's peak",
        ),
        imports=reference.imports,
        made_for=problem.hardware,
        devices=("cuda",) if python_text.wants_cuda([reference, check]) else ("cpu", "cuda"),
    )


def _cases(reference: python_text.Module, shapes: python_text.Module) -> Iterator[Case]:
    """One a shape. Raises DefinitionError where they are no constants."""
    listed = shapes.constants.get("SHAPES")
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise python_text.mistake(shapes.path, "a list SHAPES of dicts of numbers", "none that can be read")
    for number, sizes in enumerate(listed):
        inputs = _inputs(reference, sizes)
        yield Case(name=f"shapes.{number}", use=("check", "time"), arguments=sizes, inputs=inputs)


def target_hard(task: ForeignTask, answers: Mapping[str, Path]) -> Made:
    """The problem at its first shape as a target: constructors make the weights, right after seeding."""
    own = variant(task, "entry.py", "Model", "the problem's own Model", "example")
    dtype = next((one for one in task.dtypes if one in FLOATS), "float32")
    fields = {
        "function": "model",
        "signature": {},
        "generator": {"python": "entry.py:inputs"},
        "modules": {"arguments": {"python": "entry.py:arguments"}},
        "reference": {"python": "entry.py:Model"},
        "baseline": {"python": "entry.py:Model", "compiled": True},
        "tolerance": {dtype: tolerance(task.judging, 1e-2)},
        "dtypes": {"cpu": dtype, "cuda": dtype},
        "workloads": {"task": [{}]},
        "variants": variants(task, answers, "Model") or {"theirs": own},
    }
    links = {name: task.path / name for name in ("reference.py", "shapes.py")}
    links |= {f"{ANSWERS}/{name}.py": path for name, path in answers.items()}
    return Made(fields, links, {"entry.py": AT_FIRST_SHAPE})


def run_by(task: ForeignTask) -> tuple[str, ...]:
    """The commands of a task of AgentKernelArena, in the order in which they run."""
    return tuple(command for _, command, _ in _commands(task))


def _commands(task: ForeignTask) -> Iterator[tuple[str, str, float]]:
    """Phase, command and the seconds that it may take."""
    arena = parse(Arena, load_yaml(task.path / CONFIG))
    for phase in PHASES:
        for command in getattr(arena, f"{phase}_command"):
            yield phase, command, getattr(arena, f"{phase}_timeout") or float("inf")


def steps_arena(asked: Asked, folder: Path) -> list[Step]:
    """Each command in a copy of the task, with the answer in the place of the file that it is about."""
    arena = parse(Arena, load_yaml(asked.task.path / CONFIG))
    place = folder / "task"
    shutil.copytree(asked.task.path, place)
    shutil.copyfile(asked.answer, place / arena.answer)
    return [
        _step(asked, place, folder / f"{number}.{phase}.txt", ("/bin/sh", "-c", command), limit_s)
        for number, (phase, command, limit_s) in enumerate(_commands(asked.task))
    ]


def steps_hard(asked: Asked, folder: Path) -> list[Step]:
    """`check.py`, then `benchmark.py`, two folders below a copy of the repository's `src`, as they expect it."""
    place = folder / "problems" / asked.task.path.name
    shutil.copytree(asked.task.path, place)
    if (source := asked.task.path.parent.parent / "src").is_dir():
        shutil.copytree(source, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(asked.answer, place / "solution.py")
    return [
        _step(asked, place, folder / f"{number}.{phase}.txt", (asked.python, f"{name}.py"), float("inf"))
        for number, (phase, name) in enumerate((("correctness", "check"), ("performance", "benchmark")))
    ]


def _step(asked: Asked, place: Path, result: Path, command: tuple[str, ...], limit_s: float) -> Step:
    """Their `python3` is the interpreter that has what the evaluator needs."""
    path = {"PATH": f"{Path(asked.python).parent}:{os.environ.get('PATH', '')}"}
    return Step(("/bin/sh", "-c", TELLS, "sh", str(result), *command), place, result, path, limit_s)


def read_commands(done: list[tuple[Step, Completed, str]]) -> Verdict:
    """Right where every command up to the correctness check ended well; what all printed, word for word."""
    printed = {step.result.stem.partition(".")[2]: text for step, _, text in done}
    step, last, text = done[-1]
    phase = step.result.stem.partition(".")[2]
    why = ""
    if not last.ok:
        words = [line for line in text.splitlines()[:-1] if line.strip()]
        why = f"{shlex.join(step.command[-1:])}: {last.how}" + (f": {words[-1].strip()}" if words else "")
    right = last.ok or phase == "performance"
    return Verdict(status="right" if right else "wrong", why=why, result=printed)


def _inputs(reference: python_text.Module, sizes: dict[str, Any]) -> tuple[Tensor, ...] | None:
    """Inputs at one shape: its sizes take the place of the reference's constants."""
    try:
        made = reference.returned("get_inputs", sizes)
    except (Unknown, RecursionError):
        return None
    found = [one for one in made if isinstance(one, Tensors)]
    return tuple(Tensor(name=str(number), shape=one.shape, dtype=one.dtype) for number, one in enumerate(found))


def _check_answer(arena: Arena, document: Document) -> None:
    """Raise DefinitionError where an answer would take the place of no file below the task's folder."""
    if os.path.normpath(arena.answer).split("/")[0] in ("", ".", ".."):
        key = "target_file_path" if arena.target_file_path else "source_file_path"
        expected, got = "a file in the task's folder", arena.answer or "none"
        raise DefinitionError([complain(document, (key,), expected, got)])


def load_arena(path: Path, why: str) -> ForeignTask:
    """Read one task. Raises DefinitionError with the line of what is wrong or missing."""
    file = path if path.name == CONFIG else path / CONFIG
    document = load_yaml(file)
    arena = parse(Arena, document)
    if not arena.repo_url and not arena.image_repo_path:
        for index, source in enumerate(arena.source_file_path):
            if not (file.parent / source).is_file():
                line, column = document.position(("source_file_path", index))
                raise python_text.mistake(file, "a file", f"{source}, which is not there", line, column)
    _check_answer(arena, document)
    wanted = arena.platform_support.get("required_arch") or ()
    kinds = arena.task_type.split("2")
    architectures = (wanted,) if isinstance(wanted, str) else tuple(map(str, wanted))
    commands = (arena.compile_command, arena.correctness_command, arena.performance_command)
    return ForeignTask(
        format=ARENA,
        why=why,
        name=file.parent.name,
        path=file.parent,
        files=tuple(sorted(one for one in file.parent.rglob("*") if one.is_file() and one.suffix != ".pyc")),
        entry=", ".join(arena.target_kernel_functions) or "what its prompt says",
        languages=(kinds[-1],),
        reference="its own commands: " + "; ".join(" && ".join(one) for one in commands),
        cases=(),
        dtypes=(),
        judging=Judging(checker=" && ".join(arena.correctness_command)),
        timing=Timing(
            method=" && ".join(arena.performance_command),
            cold_cache=None,
            fresh_inputs=None,
            checked=None,
            score="20 if it compiles, 100 if it is right, and 100 x speedup",
        ),
        made_for=tuple(dict.fromkeys((*arena.supported_archs, *architectures))),
        devices=("cpu", "cuda") if set(kinds) <= {"cpp", "python"} else ("cuda",),
        own_contract=True,
        downloads=bool(arena.repo_url),
    )
