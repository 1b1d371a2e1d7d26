"""The build of a Python variant: a copy of its files, under the hash of their contents.

The files are found by reading the source; nothing runs. The worker loads the copy, so an edit of the target's
folder changes nothing that is being judged, and two versions of one module can be timed side by side.
"""

import ast
import os
import platform
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.locks import own_folder
from loop.builds.compiler_errors import BuildFailed
from loop.builds.known_builds import new_folder
from loop.model.measurement import Build
from loop.model.target import PythonVariant

SOURCES = "sources"
"""Folder of the copy, below that of the build."""
LARGEST = 16 << 20
"""Bytes of a file that is copied."""
QUOTED = re.compile(r'"([^"\n]{1,255})"')
"""What a file that is no Python may name: `#include "tile.cuh"`."""
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def files_of(modules: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Files of a folder that these modules use, as relative paths; none of installed packages.

    These are files that they import anywhere, files that a string in them names, and so on in turn.
    """
    names = list(modules)
    places = list(dict.fromkeys(["", *(os.path.dirname(name) for name in names if name.endswith(".py"))]))
    waiting = [file for name in names for file in _of_module(name, places, folder)]
    files: dict[str, None] = {}
    while waiting:
        file = os.path.normpath(waiting.pop())
        if file not in files:
            files[file] = None
            waiting += _read_by(file, places, folder)
    return tuple(sorted(files))


def _of_module(name: str, places: Iterable[str], folder: Path) -> list[str]:
    """The file of a module, and those of the packages that it is in; empty where it is not in the folder."""
    if name.endswith(".py"):
        return [name] if _is_file(folder, name) else []
    for place in places:
        files: list[str] = []
        path = place
        for part in name.split("."):
            path = os.path.join(path, part)
            files += [file for file in (f"{path}.py", f"{path}/__init__.py") if _is_file(folder, file)]
        if files:
            return files
    return []


def _is_file(folder: Path, name: str) -> bool:
    path = folder / name
    try:
        inside = not os.path.isabs(name) and not os.path.normpath(name).startswith("..")
        return inside and path.is_file() and path.stat().st_size <= LARGEST
    except (OSError, ValueError):  # A text that is no name of a file.
        return False


def _read_by(file: str, places: Iterable[str], folder: Path) -> Iterator[str]:
    """The files of the folder that a file imports or names."""
    here = os.path.dirname(file)
    if not file.endswith(".py"):
        texts = QUOTED.findall((folder / file).read_text(errors="replace"))
    else:
        tree = _parsed(folder / file)
        for name, level in _imports(tree):
            up = os.path.join(here, *[".."] * (level - 1))
            yield from _of_module(name, [up] if level else [*places, here], folder)
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    named = (os.path.join(place, text) for text in texts if text for place in (here, ""))
    yield from (name for name in named if _is_file(folder, name))


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Modules that may be imported, each with how many packages up it is looked for; 0: anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            words = [node.module] if node.module else []
            yield from ((".".join([*words, alias.name]), node.level) for alias in node.names)


def _parsed(path: Path) -> ast.Module:
    """A file's syntax; empty where it has none."""
    try:
        return _syntax(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _syntax(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def build(name: str, variant: PythonVariant, folder: Path, cache: Path) -> Build:
    """Copy a variant's files, or find the copy. Raises BuildFailed with file and line where one is no Python."""
    try:
        contents = {file: (folder / file).read_bytes() for file in files_of([variant.module], folder)}
    except OSError as error:
        raise BuildFailed(f"{error.filename}: {error.strerror}", "see who else writes there", "") from error
    if not contents:
        raise BuildFailed(f"{variant.module}: no such file", f"it is named in {folder / 'target.yaml'}", "")
    for file, content in contents.items():
        if file.endswith(".py"):
            _refuse(file, content)
    build_id = _digest(contents)
    known = find_id(name, build_id, cache)
    if known is None:
        _copy(contents, build_id, cache)
    return known or _build(name, build_id, cache, len(contents), cached=False)


def _refuse(file: str, content: bytes) -> None:
    """Raise BuildFailed where a file is no Python, in its parser's words."""
    try:
        _syntax(content)
    except SyntaxError as error:
        line = f"{file}:{error.lineno or 1}:{error.offset or 1}: {error.msg}"
        raise BuildFailed(line, "Python cannot read it", f"{line}\n{error.text or ''}") from error
    except (ValueError, RecursionError) as error:
        raise BuildFailed(f"{file}: {error}", "Python cannot read it", "") from error


def find_id(name: str, build_id: str, cache: Path) -> Build | None:
    """The copy with that id, if it still holds what it held."""
    copied = cache / build_id / SOURCES
    files = [path for path in copied.rglob("*") if path.is_symlink() or not path.is_dir()]
    if any(path.is_symlink() for path in files):  # It leads to what somebody else may change.
        return None
    contents = {str(path.relative_to(copied)): path.read_bytes() for path in files}
    whole = contents and _digest(contents) == build_id
    return _build(name, build_id, cache, len(contents), cached=True) if whole else None


def _digest(contents: dict[str, bytes]) -> str:
    parts = (part for name in sorted(contents) for part in (name, content_hash(contents[name])))
    return content_hash("\0".join(["python", *parts]))[:32]


def _build(name: str, build_id: str, cache: Path, files: int, *, cached: bool) -> Build:
    return Build(
        variant=name,
        build_id=build_id,
        library=str(cache / build_id / SOURCES),
        seconds=0.0,
        cached=cached,
        units=0,
        compiled=False,
        compiler=f"Python {platform.python_version()}",
        note=f"{name} copied ({files} file{'s' * (files != 1)})",
    )


def _copy(contents: dict[str, bytes], build_id: str, cache: Path) -> None:
    """Write the copy; what stands in its place is damaged, and goes."""
    place = cache / build_id
    with new_folder(cache) as folder, own_folder(cache, ".old-") as doomed:
        for file, content in contents.items():
            path = folder / SOURCES / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            if place.exists():
                place.rename(doomed / "old")
            folder.rename(place)
        except OSError:
            if find_id("", build_id, cache) is None:  # Else another session was quicker.
                raise


def same_statements(first: Path, second: Path) -> bool:
    """Whether two copies hold the same statements: no comment, docstring or spacing counts."""
    before, after = (
        {str(path.relative_to(copied)): _form(path) for path in copied.rglob("*") if path.is_file()}
        for copied in (first, second)
    )
    return before == after


def _form(path: Path) -> object:
    if path.suffix != ".py":
        return path.read_bytes()
    tree = _parsed(path)
    for node in ast.walk(tree):
        body = node.body if isinstance(node, (ast.Module, *DEFINED)) else []
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[:1] = []
    return ast.dump(tree)


def imports(package: str, files: Iterable[str], folder: Path) -> bool:
    """Whether one of these files imports a package."""
    names = (
        name
        for file in files
        if file.endswith(".py")
        for name, level in _imports(_parsed(folder / file))
        if not level
    )
    return any(name.partition(".")[0] == package for name in names)
