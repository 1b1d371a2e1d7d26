"""The house rules: floors, who may print, who may import torch, how long a file may be."""

import ast
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from tests.conftest import ROOT

FLOORS = (
    (
        "errors",
        "places",
        "documents",
        "expressions",
        "stats",
        "processes",
        "interrupts",
        "supervisor",
        "locks",
        "response_files",
        "signatures",
        "terminals",
        "remarks",
        "owners",
        "linux",
        "cgroups",
        "machine_failures",
    ),
    ("model",),
    ("rules", "library", "repository", "trust", "bench", "cloud", "store", "metering", "report", "screen"),
    ("bisect",),
    ("actions",),
    ("runner",),
    ("commands",),
    ("cli", "pytorch"),
)
"""From the ground up: a file imports from floors below or its own room; `GROUND` is for the ground floor."""
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
GROUND = {
    "documents": {"errors", "terminals", "remarks"},
    "expressions": {"errors"},
    "places": {"errors", "remarks", "owners"},
    "processes": {"errors", "linux"},
    "interrupts": {"errors"},
    "supervisor": {"processes", "linux", "remarks", "cgroups"},
    "cgroups": {"processes"},
    "locks": {"errors"},
    "remarks": {"terminals"},
    "machine_failures": {"errors", "places"},
}
LONGEST = 400
FILES = sorted((ROOT / "loop").rglob("*.py"))


def room_of(path: Path) -> str:
    """The room a file of the package belongs to."""
    parts = path.relative_to(ROOT / "loop").parts
    return parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> set[str]:
    """Rooms of the package that a file imports from."""
    modules = (name.split(".") for name in imports(path))
    return {parts[1] for parts in modules if parts[0] == "loop" and len(parts) > 1 and parts[1] in LEVEL}


def offenders(broken: Callable[[Path], object], *, but: Set[str] = frozenset()) -> dict[str, object]:
    """Files for which `broken` finds something, and what it found."""
    found = {str(path.relative_to(ROOT)): broken(path) for path in FILES}
    return {name: what for name, what in found.items() if what and name not in but}


def test_a_file_imports_only_from_floors_below_or_its_own_room() -> None:
    """No import points up or sideways."""

    def forbidden(path: Path) -> set[str]:
        room = room_of(path)
        level = LEVEL.get(room, -1)
        below = {other for other in LEVEL if LEVEL[other] < level}
        return rooms_imported(path) - below - {room} - GROUND.get(room, set())

    assert offenders(forbidden) == {}


def test_every_room_is_on_a_floor() -> None:
    """A new room has to find its floor before it is used."""
    assert set() == {room_of(path) for path in FILES} - set(LEVEL) - {"__init__"}


def test_torch_and_numpy_are_imported_by_children_only() -> None:
    """The parent stays quick, and a library kills a child, not the session; a user's program has them anyway."""

    def heavy(path: Path) -> set[str]:
        own = "child" in path.parts or room_of(path) == "pytorch"
        return set() if own else {name.split(".")[0] for name in imports(path)} & {"torch", "numpy"}

    assert offenders(heavy) == {}


def test_only_the_screen_prints() -> None:
    """Nothing else writes to stdout or stderr."""

    def prints(path: Path) -> bool:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        return "print" in {node.func.id for node in calls if isinstance(node.func, ast.Name)}

    assert offenders(prints) == {}


def test_a_parent_catches_everything_in_two_places_only() -> None:
    """Around a step, and at the one door; a child process shields itself from what it loads."""

    def broad(path: Path) -> list[int]:
        handlers = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ExceptHandler)]
        wide = [h for h in handlers if h.type is None or ast.unparse(h.type) == "Exception"]
        return [handler.lineno for handler in wide if "child" not in path.parts]

    assert offenders(broad, but={"loop/runner/session.py", "loop/cli/__init__.py"}) == {}


def test_a_file_is_one_room() -> None:
    """A file of over 400 lines is two."""
    assert offenders(lambda path: max(0, len(path.read_text().splitlines()) - LONGEST)) == {}


def test_a_module_says_why_it_exists() -> None:
    """The first thing in a file is a docstring, unless the file is empty."""

    def silent(path: Path) -> bool:
        text = path.read_text()
        return bool(text.strip()) and not ast.get_docstring(ast.parse(text))

    assert offenders(silent) == {}


def test_nothing_outside_the_target_knows_that_it_is_attention() -> None:
    """Only the bundled target's own files, and the tables that name it, mention it."""
    own = {"loop/bench/child/attention.py", "loop/bench/child/attention_properties.py"}
    tables = {*own, "loop/bench/child/torch_side.py", "loop/places.py"}
    assert offenders(lambda path: "attention" in path.read_text().lower(), but=tables) == {}
