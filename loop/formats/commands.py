"""Tasks that are judged by commands of their own: kernelbench.com hard and AgentKernelArena."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field

from loop.base.documents import Document, complain, load_yaml, nearest, parse
from loop.base.errors import DefinitionError
from loop.base.processes import Completed
from loop.formats import python_text
from loop.formats.model import FLOATS, Case, ForeignTask, Judging, Tensor, Timing
from loop.formats.python_text import Tensors, Unknown
from loop.formats.target import ANSWERS, Made, tolerance, variant, variants
from loop.formats.theirs import Asked, Step, Verdict
from loop.model.base import Model
from loop.model.dtypes import ITEM_SIZES

HARD, ARENA = "kernelbench-hard", "agent-kernel-arena"
PROBLEM, CONFIG = "problem.yaml", "config.yaml"
HARD_STEPS = (("correctness", "check"), ("performance", "benchmark"))
HARD_FILES = ("reference.py", "shapes.py", "check.py", "benchmark.py")
ARENA_KEYS = ("task_type:", "correctness_command:")
Paths = tuple[str, ...]
MISTYPED = 0.85
"""How like a known key another is that was probably meant to be it: 1 is the same (difflib)."""
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


class Described(Model):
    """What loop reads of a task's description; the other keys are for the task's own programs."""

    model_config = ConfigDict(extra="ignore")
    unread: ClassVar[frozenset[str]] = frozenset()
    """Keys that the format has beside those that are read."""


D = TypeVar("D", bound=Described)


class Problem(Described):
    """`problem.yaml` of kernelbench.com hard."""

    unread = frozenset({
        "display_name", "precision", "regime", "flops_formula", "bytes_formula", "peak_tflops_key",
        "peak_bandwidth_key", "forbidden", "sota", "num_correct_trials", "num_warmup",
    })  # fmt: skip
    name: str
    """Its name."""
    hardware: Paths = ()
    """GPUs it is made for."""
    world_size: Annotated[int, Field(ge=1)] = 1
    """GPUs that one call uses."""
    tolerance: dict[str, float | tuple[float, ...]] = Field(default_factory=dict)
    """Element type to the error that is allowed; or another measure, such as `cos_sim`, to its bound."""
    num_perf_trials: int = 30
    """Timed calls."""


class Arena(Described):
    """`config.yaml` of an AgentKernelArena task."""

    unread = frozenset({
        "harness_path", "repository_language", "repo_subdir", "post_clone_install", "post_clone_install_mode",
        "editable_sources", "image_repo_exclude", "aiter_commit", "kernel_identity", "source_origin", "prompt",
        "task_result_template",
    })  # fmt: skip
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
    repo_url: str | None = None
    """A repository that is cloned first."""
    image_repo_path: str | None = None
    """Where the repository is in a container."""
    platform_support: dict[str, Any] = Field(default_factory=dict)
    """Hardware and state."""
    supported_archs: Paths = ()
    """GPU architectures it runs on."""
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


def read_description(kind: type[D], document: Document) -> tuple[D, tuple[str, ...]]:
    """A description, and what is to be said of the keys that it leaves out.

    Raises DefinitionError at a key that is nearly one of those that are read: it would count for nothing.
    """
    found, unread = parse(kind, document), []
    known = {*kind.model_fields, *kind.unread}
    for key in document.data:
        if key in known:
            continue
        if close := nearest(str(key), sorted(known - set(document.data)), MISTYPED):
            hint = f"did you mean {close[0]!r}?"
            raise DefinitionError([complain(document, (key,), "a known name", repr(key), hint, key=True)])
        unread.append(f"{key} (line {document.position((key,), key=True)[0]})")
    return found, (f"keys that loop leaves to the task's programs: {', '.join(unread)}",) if unread else ()


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
    problem, hints = read_description(Problem, load_yaml(folder / PROBLEM))
    for name in HARD_FILES:
        if not (folder / name).is_file():
            raise python_text.mistake(folder / name, "a file that the format asks for", "none")
    reference, shapes, check = (python_text.read_module(folder / name) for name in HARD_FILES[:3])
    if not reference.defines("Model"):
        raise python_text.mistake(reference.path, "`Model`", "a file without it")
    missing = [one for one in ("get_inputs", "get_init_inputs") if not reference.defines(one)]
    hints += tuple(f"{reference.path.name} has no {one}: check.py makes inputs of its own" for one in missing)
    cases = tuple(_cases(reference, shapes))
    types = dict.fromkeys(one.dtype for case in cases for one in case.inputs or ())
    judging, has_own = _judging(problem.tolerance)
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
        judging=judging,
        timing=Timing(
            method=f"10 calls to warm up, median of {problem.num_perf_trials}",
            cold_cache=True,
            fresh_inputs=False,
            checked=False,
            score="geometric mean of the share of the GPU's peak",
        ),
        imports=reference.imports,
        made_for=problem.hardware,
        gpus=problem.world_size,
        own_contract=bool(missing) or has_own,
        hints=hints,
        devices=("cuda",) if python_text.wants_cuda([reference, check]) else ("cpu", "cuda"),
    )


def _judging(stated: Mapping[str, float | tuple[float, ...]]) -> tuple[Judging, bool]:
    """What is right by a problem's tolerance, and whether it is a measure of the problem's own."""
    usual = [most for one, most in stated.items() if one in ITEM_SIZES and isinstance(most, float)]
    if len(usual) < len(stated):
        return Judging(checker="check.py", note=f"within its bound of {', '.join(stated)}"), True
    loosest = max(usual, default=None)
    note = "seeds 42, 123 and 456, and extreme values"
    return Judging(atol=loosest, rtol=loosest, checker="check.py", note=note), False


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


def judges_alone(task: ForeignTask) -> bool:
    """Whether a task's own commands judge its answers, and loop does not."""
    return task.format == ARENA or (task.format == HARD and task.own_contract)


def run_by(task: ForeignTask) -> tuple[str, ...]:
    """The commands of a task that they alone judge, in the order in which they run."""
    if task.format == HARD:
        return tuple(f"python3 {name}.py" for _, name in HARD_STEPS)
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
        for number, (phase, name) in enumerate(HARD_STEPS)
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
    arena, hints = read_description(Arena, document)
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
        hints=hints,
    )
