"""The module and function that a user names: found as Python would, with the files that belong to it."""

import ast
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.formats.python_text import read_module
from loop.starting.source import BUILDS

MOST_FILES = 200


@dataclass(frozen=True)
class Named:
    """A function or class of the user's."""

    module: str
    name: str
    folder: Path
    """Where its module is looked for."""
    files: Mapping[str, Path]
    """Files to copy, by their names in the target; none for an installed package."""


def named(text: str) -> Named:
    """The function that `module:function` names, found as Python would find it from here; a file is a module, too.

    Raises UsageError for what is not there.
    """
    module, _, name = text.partition(":")
    folder = Path(module).parent.absolute() if "/" in module else Path.cwd()
    module = (Path(module).name if "/" in module else module).removesuffix(".py")
    if not all(word.isidentifier() for word in (*module.split("."), *name.split("."))):
        expected = f"expected module:function, or a file that ends in {', '.join(BUILDS)}"
        raise UsageError(f"{text}: {expected}", hint="loop init DIR --from torch:relu --like input=N,M")
    path = _found(module, folder)
    others = [Path(entry) for entry in sys.path if entry and Path(entry) != folder]
    if path is None or not path.is_relative_to(folder) or any(map(path.is_relative_to, others)):
        return Named(module, name, folder, {})  # It is installed, or has no text.
    read, first = read_module(path), name.partition(".")[0]
    nodes = [node for node in read.tree.body if isinstance(node, ast.ImportFrom)]
    if not read.defines(first) and not any(alias.name == "*" for node in nodes for alias in node.names):
        known = [node.name for node in read.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        hint = did_you_mean(first, known) or f"it has {', '.join(known[:8]) or 'none'}"
        raise UsageError(f"{path}: no function `{first}` there", hint=hint)
    return Named(module, name, folder, _with_imports(path, folder))


def _found(module: str, folder: Path) -> Path | None:
    """The file of a module; None for one without text. Raises UsageError where there is no such module."""
    places: list[str] | None = [str(folder), *sys.path]
    whole, spec = "", None
    for word in module.split("."):
        whole = f"{whole}.{word}".lstrip(".")
        spec = PathFinder.find_spec(whole, places) if places is not None else None
        if spec is None:
            hint = f"start the command in the folder of {whole.partition('.')[0]}.py, or pip install it"
            raise UsageError(f"{module}: no module `{whole}` here or among the installed packages", hint=hint)
        places = list(spec.submodule_search_locations) if spec.submodule_search_locations else None
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path and path.suffix == ".py" else None


def _with_imports(path: Path, folder: Path) -> dict[str, Path]:
    """A file and what it imports from its folder: modules, and packages as a whole."""
    waiting = [path]
    files: dict[str, Path] = {}
    while waiting and len(files) <= MOST_FILES:
        file = waiting.pop()
        name = file.relative_to(folder)
        if str(name) in files or not file.is_file():
            continue
        files[str(name)] = file
        packages = [folder / name.parts[0], *(folder / other for other in read_module(file).imports)]
        waiting += [package.with_name(f"{package.name}.py") for package in packages[1:]]
        for package in packages:
            if package.is_dir():
                waiting += sorted(itertools.islice(package.rglob("*.py"), MOST_FILES))
    return files
