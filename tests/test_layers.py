"""The house rules: layers of rooms, and which files may print, import torch or catch all errors."""

import ast
import re
from collections.abc import Callable, Container, Iterator, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

TABLE = re.compile(r"^\| (\d+) \| `(\w+)` \|", re.MULTILINE)
LEVEL = {room: int(floor) for floor, room in TABLE.findall((ROOT / "ARCHITECTURE.md").read_text())}
"""Rooms to their floors, as ARCHITECTURE.md says."""
WITH_TORCH = {"calls", "mistakes", "workers", "pytorch", "starting"}
"""Rooms whose code runs in a worker, or in a user's own program."""
FILES = sorted((ROOT / "loop").rglob("*.py"))


def room_of(path: Path) -> str:
    """The room a file of the package belongs to."""
    parts = path.relative_to(ROOT / "loop").parts
    return parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    """The dotted name of a file of the package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@dataclass
class Facts:
    """Facts about a file that the rules check."""

    explained: bool
    """Whether it begins with a docstring, or is empty."""
    imports: list[str] = field(default_factory=list)
    """Modules of `import`."""
    imported_from: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Modules of `from`, and the names that are taken from them."""
    called: set[str] = field(default_factory=set)
    """Functions that it calls by a bare name."""
    broad: list[int] = field(default_factory=list)
    """Lines of handlers that catch everything."""


@cache
def facts(path: Path) -> Facts:
    """Facts of a file, parsed once for all rules; imports inside functions count."""
    tree = ast.parse(path.read_text())
    result = Facts(not tree.body or ast.get_docstring(tree) is not None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            result.imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            result.imported_from.append((node.module, tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            result.called.add(node.func.id)
        elif isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "Exception"):
            result.broad.append(node.lineno)
    return result


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, also inside functions."""
    yield from facts(path).imports
    for module, names in facts(path).imported_from:
        yield module
        yield from (f"{module}.{name}" for name in names)


def modules_imported(path: Path, modules: Container[str]) -> Iterator[str]:
    """Modules of `loop` that a file imports; `from package import module` counts as the module."""
    for module, names in facts(path).imported_from:
        inner = [f"{module}.{name}" for name in names]
        yield from (name if name in modules else module for name in inner)


def rooms_imported(path: Path) -> set[str]:
    """Rooms of the package that a file imports from."""
    modules = (name.split(".") for name in imports(path))
    return {parts[1] for parts in modules if parts[0] == "loop" and len(parts) > 1 and parts[1] in LEVEL}


def offenders(broken: Callable[[Path], object], *, but: Set[str] = frozenset()) -> dict[str, object]:
    """Files for which `broken` returns something true, with that result; files in `but` are left out."""
    results = {str(path.relative_to(ROOT)): broken(path) for path in FILES}
    return {name: result for name, result in results.items() if result and name not in but}


def upward(path: Path) -> set[str]:
    """Rooms on the same floor or above that a file imports from."""
    room = room_of(path)
    return {imported for imported in rooms_imported(path) - {room} if LEVEL[imported] >= LEVEL.get(room, -1)}


def circles() -> dict[str, set[str]]:
    """Modules in an import circle, or that import such a module, with their remaining imports."""
    modules = {module_of(path): path for path in FILES}
    pending = {name: {*modules_imported(path, modules)} & set(modules) - {name} for name, path in modules.items()}
    while leaves := {name for name, imported in pending.items() if not imported & set(pending)}:
        pending = {name: imported for name, imported in pending.items() if name not in leaves}
    return pending


def test_a_file_imports_only_from_floors_below_or_its_own_room() -> None:
    """No import points up or sideways."""
    assert offenders(upward) == {}


def test_every_room_has_a_floor_and_every_floor_a_room() -> None:
    """The table of ARCHITECTURE.md names the rooms that there are, no more and no fewer."""
    assert set(LEVEL) == {room_of(path) for path in FILES} - {"__init__"}


def test_no_import_leads_back() -> None:
    """Files import each other in one direction."""
    assert {} == circles()


def test_torch_and_numpy_are_imported_by_children_only() -> None:
    """The parent starts quickly, and a crash inside a library ends a child process, not the session."""

    def heavy(path: Path) -> set[str]:
        is_child = room_of(path) in WITH_TORCH
        libraries = {name.split(".")[0] for name in imports(path)} & {"torch", "numpy"}
        return set() if is_child else libraries

    assert offenders(heavy) == {}


def test_only_the_screen_prints() -> None:
    """No other module calls `print`."""
    assert offenders(lambda path: "print" in facts(path).called) == {}


def test_a_parent_catches_everything_in_two_places_only() -> None:
    """`except Exception` stands around a step and in the command line; child processes may have it anywhere."""

    def broad(path: Path) -> list[int]:
        return [] if room_of(path) in WITH_TORCH else facts(path).broad

    assert offenders(broad, but={"loop/session/walk.py", "loop/cli/__init__.py"}) == {}


def test_a_module_says_why_it_exists() -> None:
    """The first thing in a file is a docstring, unless the file is empty."""
    assert offenders(lambda path: not facts(path).explained) == {}


def test_nothing_outside_the_target_knows_that_it_is_attention() -> None:
    """Only the bundled target's own files, and the tables that name it, mention it."""
    tables = {"loop/library/definitions.py"}
    assert offenders(lambda path: "attention" in path.read_text().lower(), but=tables) == {}
