"""Parse foreign Python and JSON files without running them; mistakes get line and column."""

import ast
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from loop.base.documents import Document, load_yaml, parse
from loop.base.documents.reading import Place, Position, short_path
from loop.base.errors import Complaint, DefinitionError
from loop.model.base import Model

MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Module:
    """A parsed Python file."""

    path: Path
    tree: ast.Module

    def find_function(self, name: str) -> ast.FunctionDef | None:
        """The last top-level function of a name; None without one."""
        functions = [node for node in self.tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
        return functions[-1] if functions else None

    def defines(self, name: str) -> bool:
        """Whether a top-level function, class, import or assignment defines a name."""
        return any(name in _defined_names(node) for node in self.tree.body)

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
        data = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError as error:
        raise file_error(path, "a file that can be read", error.strerror or "an error") from error
    if data is None:
        raise file_error(path, f"at most {MOST_BYTES >> 20} MiB", "a larger file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise file_error(path, "UTF-8 text", f"byte 0x{data[error.start]:02x}", line) from error


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
        if isinstance(node, ast.Constant) and str(node.value).partition(":")[0] == "cuda":
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            return True
    return False


def _defined_names(node: ast.stmt) -> set[str]:
    """Names that a statement defines: a function, a class, imports, or variables."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}


T = TypeVar("T", bound=Model)


@dataclass(frozen=True)
class JsonDocument(Document):
    """Data of JSON text. Positions are found only when a complaint needs one."""

    text: str = ""
    lines_above: int = 0
    """Lines of the file before `text`."""

    @cached_property
    def located(self) -> Document:
        """The same with line and column of each value, by the YAML parser; of the beginning, if that refuses
        it."""
        try:
            marks = load_yaml("\n" * self.lines_above + self.text, self.name).marks
        except DefinitionError:
            marks = self.lines_above + 1, 1
        return Document(self.name, self.data, marks)

    def position(self, place: Place, *, key: bool = False) -> Position:
        """As of any document."""
        return self.located.position(place, key=key)


def read_json(path: Path, model: type[T], text: str | None = None, lines_above: int = 0) -> tuple[T, Document]:
    """Read a JSON file as a model, or its part `text`, which starts after `lines_above` lines.
    Raises DefinitionError with line and column of every mistake."""
    text = read_text(path) if text is None else text
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise file_error(path, "JSON", error.msg, error.lineno + lines_above, error.colno) from error
    except RecursionError as error:
        raise file_error(path, "JSON", "a structure that is too deep", lines_above + 1) from error
    document = JsonDocument(short_path(path), data, text=text, lines_above=lines_above)
    return parse(model, document), document


def read_lines(path: Path, model: type[T]) -> Iterator[tuple[T, Document]]:
    """Read each line of a JSON-lines file as a model; empty lines are skipped."""
    for number, line in enumerate(read_text(path).split("\n")):
        if line.strip():
            yield read_json(path, model, line, number)
