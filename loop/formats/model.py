"""A foreign task and the target that `loop` makes of it, the same for all formats. Foreign Python
and JSON files are parsed without running them; a mistake gets file, line and column."""

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field

from loop.base.documents import Document, Place, Position, load_yaml, parse, short_path
from loop.base.errors import Complaint, DefinitionError, UsageError
from loop.model.base import Model, Printed
from loop.model.dtypes import ITEM_SIZES

T = TypeVar("T", bound=Model)
MOST_BYTES = 4 << 20
ELEMENT_TYPES = frozenset((*ITEM_SIZES, "float4_e2m1", "float4_e2m1fn_x2"))  # Those of tasks.
REFERENCE_VARIANT = "theirs"
"""Name of the variant that stands for a task's own reference, if there are no answers."""
Obstacle = Literal["cuda", "several GPUs", "dependency", "file", "download", "contract"]


@dataclass(frozen=True)
class Module:
    """A parsed Python file."""

    path: Path
    tree: ast.Module

    def find_function(self, name: str) -> ast.FunctionDef | None:
        """The last top-level function of a name; None without one."""
        functions = [node for node in self.tree.body if isinstance(node, ast.FunctionDef)]
        return {function.name: function for function in functions}.get(name)

    def defines(self, name: str) -> bool:
        """Whether a top-level function, class, import or assignment defines a name."""
        for node in self.tree.body:
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.asname or alias.name for alias in node.names]
            elif isinstance(node, ast.Assign):
                parts = [part for target in node.targets for part in ast.walk(target)]
                names = [part.id for part in parts if isinstance(part, ast.Name)]
            if name in names:
                return True
        return False

    @property
    def imported_packages(self) -> tuple[str, ...]:
        """Top-level packages that the file imports anywhere."""
        return list_imports(ast.walk(self.tree))


def list_imports(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """Top-level packages of the import statements among `nodes`, without relative imports."""
    names: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module.split(".")[0]] = None
    return tuple(names)


def file_error(
    path: Path, expected: str, got: str, line: int = 1, column: int = 1, hint: str | None = None
) -> DefinitionError:
    """A DefinitionError for one place in a file."""
    return DefinitionError([Complaint(short_path(path), line, column, "", expected, got, hint)])


def read_text(path: Path) -> str:
    """The text of a file. Raises DefinitionError if it is unreadable, too large or not UTF-8."""
    try:
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError as error:
        raise file_error(path, "a file that can be read", error.strerror or "an error") from error
    if content is None:
        raise file_error(path, f"at most {MOST_BYTES >> 20} MiB", "a larger file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise file_error(path, "UTF-8 text", f"byte 0x{content[error.start]:02x}", line) from error


def read_module(path: Path, text: str | None = None) -> Module:
    """Parse a file, or the given `text`. Raises DefinitionError with the line of a syntax error."""
    source = read_text(path) if text is None else text
    try:
        return Module(path, ast.parse(source))
    except SyntaxError as error:
        got = f"a mistake in it: {error.msg}"
        raise file_error(path, "Python", got, error.lineno or 1, error.offset or 1) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise file_error(path, "Python", f"{type(error).__name__}: {error}"[:80]) from error


def uses_cuda(modules: Sequence[Module]) -> bool:
    """Whether the code names the device `cuda`, or calls `.cuda()`."""
    for node in (node for module in modules for node in ast.walk(module.tree)):
        is_name = isinstance(node, ast.Constant) and str(node.value).partition(":")[0] == "cuda"
        if is_name or (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "cuda"):
            return True
    return False


@dataclass(frozen=True)
class JsonDocument(Document):
    """Data of JSON text. Positions are found only when a complaint needs one."""

    text: str = ""
    lines_above: int = 0  # Lines of the file before `text`.

    @cached_property
    def located(self) -> Document:
        """The same with the YAML parser's positions of values; if that fails, its first line's."""
        try:
            return load_yaml("\n" * self.lines_above + self.text, self.name)
        except DefinitionError:
            return Document(self.name, self.data, {(): (self.lines_above + 1, 1)})

    def position(self, place: Place, *, key: bool = False) -> Position:
        """As in `Document`: line and column of the value, or of its key."""
        return self.located.position(place, key=key)


def read_json(path: Path, model: type[T], text: str = "", skipped: int = 0) -> tuple[T, Document]:
    """Read a JSON file as a model, or its part `text`, before which there are `skipped` lines.
    Raises DefinitionError with line and column of every mistake."""
    text = text or read_text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise file_error(path, "JSON", error.msg, error.lineno + skipped, error.colno) from error
    except RecursionError as error:
        raise file_error(path, "JSON", "a structure that is too deep", skipped + 1) from error
    document = JsonDocument(short_path(path), data, text=text, lines_above=skipped)
    return parse(model, document), document


class TaskFile(Model):
    """Content of a task's file. Fields that `loop` does not need are ignored."""

    model_config = ConfigDict(extra="ignore")


class Case(Model):
    """One call that the task makes."""

    name: str
    """Name in the task, or a number."""
    use: tuple[Literal["check", "time"], ...]
    """Whether the format checks the call, times it, or both."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its generator, or the sizes of its axes."""


class AcceptanceRule(Model):
    """When an output counts as right."""

    atol: float | None = None
    """Allowed absolute error; None if the task has its own checker."""
    rtol: float | None = None
    """Allowed relative error; None if the task has its own checker."""
    matched_ratio: float = 1.0
    """Share of elements that have to be within the tolerance."""
    cap: float | None = None
    """Largest absolute error of any element; None: no cap."""
    either: bool = False
    """True: an error may reach the larger of `atol` and `rtol` x |expected|; False: their sum."""
    checker: str | None = None
    """Name of the task's own checker; None without one."""
    note: str = ""


class Timing(Model):
    """How the format times an answer."""

    method: str
    """Clock, warm-up calls and timed calls."""
    cold_cache: bool | None
    """Whether the L2 cache is cleared before each call; None: unknown."""
    fresh_inputs: bool | None
    """Whether timed calls get fresh inputs; None: unknown."""
    checked: bool | None
    """Whether outputs of timed calls are checked; None: unknown."""
    score: str
    """How the format computes a score from the times."""


class Hindrance(Model):
    """Something that a task needs and this machine lacks."""

    kind: Obstacle
    what: str


class ForeignTask(Model):
    """One task of another project, as read from its files."""

    format: str
    """Name of the format in the table."""
    why: str = ""
    """How the format was recognised."""
    name: str
    """What the task is called."""
    path: Path
    files: tuple[Path, ...]
    """Every file that was read."""
    entry: str
    """What an answer has to define."""
    languages: tuple[str, ...]
    reference: str
    """The function that computes the right output."""
    cases: tuple[Case, ...]
    """The calls that the task makes."""
    dtypes: tuple[str, ...]
    """Element types of inputs and outputs; empty where only the generator knows them."""
    judging: AcceptanceRule
    timing: Timing
    imports: tuple[str, ...] = ()
    made_for: tuple[str, ...] = ()
    """Hardware that the task names."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """Where its code can run."""
    gpus: int = 1
    """GPUs that it needs where it runs on GPUs."""
    downloads: bool = False
    """Whether its code fetches weights from the network."""
    own_contract: bool = False
    """Whether its judging program makes inputs and checks outputs in a way unknown to `loop`."""
    needs_files: tuple[Path, ...] = ()
    """Data files that cases name."""
    hints: tuple[str, ...] = ()
    """Peculiarities found in the task's text."""


class Inspected(Printed, ForeignTask):
    """A task and whether it runs on this machine: the output of `loop targets inspect`."""

    runs: tuple[str, ...]
    """Cases that run here: all, or none."""
    hindrances: tuple[Hindrance, ...]
    """Why the cases cannot run; empty if they can."""


def is_installed(name: str) -> bool:
    """Whether a package is installed. It is looked up, not imported."""
    try:
        return name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def find_hindrances(task: ForeignTask, gpus: int) -> list[Hindrance]:
    """Why `loop` cannot judge a task on `gpus` usable GPUs; empty if it can."""
    gpus_text = f"{gpus} here" if gpus else "none here"
    reasons: list[tuple[bool, Obstacle, str]] = [
        (task.own_contract, "contract", "inputs and checks that loop knows: the task has its own"),
        (task.devices == ("cuda",) and not gpus, "cuda", "a CUDA device; there is none here"),
        (task.gpus > 1, "several GPUs", f"{task.gpus} GPUs, {gpus_text}; loop runs tasks of one"),
    ]
    for name in task.imports:
        package = f"the Python package {name}, which is not installed"
        reasons.append((not is_installed(name), "dependency", package))
    weights = "pretrained weights from the network; loop downloads nothing"
    reasons.append((task.downloads, "download", weights))
    for path in task.needs_files:
        reasons.append((not path.is_file(), "file", f"{path}, which is not there"))
    return [Hindrance(kind=kind, what=what) for is_missing, kind, what in reasons if is_missing]


WORKLOAD_NAME = re.compile(r"[A-Za-z]\w{0,63}")
GPU_PACKAGES = ("triton", "cupy", "cutlass", "tilelang", "cuda", "pycuda")  # They need a GPU.
ANSWERS = "answers"  # Folder of a target that holds links to answers.


@dataclass(frozen=True)
class TargetDraft:
    """A target, before it is written."""

    fields: Mapping[str, Any]  # Fields of `target.yaml`, without `format` and `name`.
    links: Mapping[str, Path]  # Name in the target's folder to the file that it links to.
    texts: Mapping[str, str] = field(default_factory=dict)  # Name to text of `loop`'s files.


def make_variants(
    task: ForeignTask, answers: Mapping[str, Path], function: str, pattern: str, reference: str
) -> dict[str, dict[str, Any]]:
    """Name to fields of a variant for each answer, which has to define `function`; without any, for
    the task's `reference`. `pattern`: a name's module. LoopError, also if a package is missing."""
    if not answers:
        return {REFERENCE_VARIANT: variant_fields(task, *reference.split(":"))}
    variants = {}
    for name, path in answers.items():
        module = read_module(path)
        if not module.defines(function):
            hint = f"an answer needs {task.entry}"
            raise file_error(path, f"`{function}`", "a file without it", hint=hint)
        fields = variant_fields(task, pattern.format(name), function, f"the answer {path.name}")
        variants[name] = fields | device_fields(path, [module], [file.stem for file in task.files])
    return variants


def device_fields(path: Path, modules: list[Module], own_modules: list[str]) -> dict[str, Any]:
    """`{"device": "cuda"}` if an answer's imports need a GPU, else {}. `own_modules`: modules of
    the task. Raises UsageError for a package that is not installed."""
    # Only imports at the top: without others a module can be loaded.
    names = [name for module in modules for name in list_imports(module.tree.body)]
    packages = [name for name in dict.fromkeys(names) if name not in own_modules]
    missing = ", ".join(name for name in packages if not is_installed(name))
    if missing:
        problem = f"{path}: not judged here: it imports {missing}, which is not installed"
        raise UsageError(problem, "an answer is one file; install what it needs beside loop")
    return {"device": "cuda"} if set(GPU_PACKAGES) & set(packages) else {}


def variant_fields(task: ForeignTask, module: str, name: str, title: str = "") -> dict[str, Any]:
    """The fields of one Python variant in target.yaml; without a title, of the task's reference."""
    device = "any" if "cpu" in task.devices else "cuda"
    fields = {"kind": "python", "title": title or "the task's own reference", "device": device}
    return fields | {"role": "main" if title else "example", "module": module, "function": name}


def tolerance_fields(rule: AcceptanceRule, defaults: Mapping[str, float]) -> dict[str, Any]:
    """The `tolerance` of target.yaml by a task's rule. `defaults`: for what it leaves open."""
    fields: dict[str, Any] = {}
    for dtype, default in defaults.items():
        atol = default if rule.atol is None else rule.atol
        rtol = default if rule.rtol is None else rule.rtol
        cap = {} if rule.cap is None else {"cap": rule.cap}
        fields[dtype] = {"atol": atol, "rtol": rtol, "matched": rule.matched_ratio, **cap}
    return fields
