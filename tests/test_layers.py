"""The house rules: floors, who may print, who may import torch, how long a file may be."""

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
    """What the rules ask of a file."""

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
    """A file as it is parsed once for all rules; also what stands inside functions."""
    tree = ast.parse(path.read_text())
    found = Facts(not tree.body or ast.get_docstring(tree) is not None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.imported_from.append((node.module, tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.called.add(node.func.id)
        elif isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "Exception"):
            found.broad.append(node.lineno)
    return found


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, also inside functions."""
    yield from facts(path).imports
    for module, names in facts(path).imported_from:
        yield module
        yield from (f"{module}.{name}" for name in names)


def modules_imported(path: Path, modules: Container[str]) -> Iterator[str]:
    """Modules of the package that a file imports; of a package that is only the way to a module, the module."""
    for module, names in facts(path).imported_from:
        inner = [f"{module}.{name}" for name in names]
        yield from (name if name in modules else module for name in inner)


def rooms_imported(path: Path) -> set[str]:
    """Rooms of the package that a file imports from."""
    modules = (name.split(".") for name in imports(path))
    return {parts[1] for parts in modules if parts[0] == "loop" and len(parts) > 1 and parts[1] in LEVEL}


def offenders(broken: Callable[[Path], object], *, but: Set[str] = frozenset()) -> dict[str, object]:
    """Files for which `broken` finds something, and what it found."""
    found = {str(path.relative_to(ROOT)): broken(path) for path in FILES}
    return {name: what for name, what in found.items() if what and name not in but}


def upward(path: Path) -> set[str]:
    """Rooms on the same floor or above that a file imports from."""
    room = room_of(path)
    return {other for other in rooms_imported(path) - {room} if LEVEL[other] >= LEVEL.get(room, -1)}


def circles() -> dict[str, set[str]]:
    """Modules whose imports lead back to themselves, or to such; also inside functions."""
    modules = {module_of(path): path for path in FILES}
    rest = {name: {*modules_imported(path, modules)} & set(modules) - {name} for name, path in modules.items()}
    while done := {name for name, others in rest.items() if not others & set(rest)}:
        rest = {name: others for name, others in rest.items() if name not in done}
    return rest


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
    """The parent stays quick, and a library kills a child, not the session; a user's program has them anyway."""

    def heavy(path: Path) -> set[str]:
        own = room_of(path) in WITH_TORCH
        libraries = {name.split(".")[0] for name in imports(path)} & {"torch", "numpy"}
        return set() if own else libraries

    assert offenders(heavy) == {}


def test_only_the_screen_prints() -> None:
    """Nothing else writes to stdout or stderr."""
    assert offenders(lambda path: "print" in facts(path).called) == {}


def test_a_parent_catches_everything_in_two_places_only() -> None:
    """Around a step, and at the one door; a child process shields itself from what it loads."""

    def broad(path: Path) -> list[int]:
        return [] if room_of(path) in WITH_TORCH else facts(path).broad

    assert offenders(broad, but={"loop/session/walk.py", "loop/cli/__init__.py"}) == {}


def test_a_module_says_why_it_exists() -> None:
    """The first thing in a file is a docstring, unless the file is empty."""
    assert offenders(lambda path: not facts(path).explained) == {}


def test_nothing_outside_the_target_knows_that_it_is_attention() -> None:
    """Only the bundled target's own files, and the tables that name it, mention it."""
    assert offenders(lambda path: "attention" in path.read_text().lower(), but={"loop/base/places.py"}) == {}
