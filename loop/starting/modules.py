"""The module and function that a user names: found as Python would, with the files that belong to it."""

import ast
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.formats.python_text import read_module
from loop.starting.source import BUILDS

MOST_FILES = 200
"""Files of a package that are copied, at most."""


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
    """The function that `module:function` names, found as Python would find it from here."""
    module, name, folder = _module(text)
    path, own = _found(module, folder)
    if path is None:
        return Named(module, name, folder, {})
    read, first = read_module(path), name.partition(".")[0]
    if own and not read.defines(first) and not _imports_all(read.tree):
        known = [node.name for node in read.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        hint = did_you_mean(first, known) or f"it has {', '.join(known[:8]) or 'none'}"
        raise UsageError(f"{path}: no function `{first}` there", hint=hint)
    return Named(module, name, folder, _with_imports(path, folder) if own else {})


def _imports_all(tree: ast.Module) -> bool:
    """Whether it imports names that its text does not show."""
    nodes = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return any(alias.name == "*" for node in nodes for alias in node.names)


def _module(text: str) -> tuple[str, str, Path]:
    """Module, function and folder; a file is a module, too."""
    module, _, name = text.partition(":")
    folder = Path(module).parent.absolute() if "/" in module else Path.cwd()
    module = Path(module).name.removesuffix(".py") if "/" in module else module.removesuffix(".py")
    if not all(word.isidentifier() for word in (*module.split("."), *name.split("."))):
        raise UsageError(
            f"{text}: expected module:function, or a file that ends in {', '.join(BUILDS)}",
            hint="loop init DIR --from torch.nn.functional:gelu --like input=N,M",
        )
    return module, name, folder


def _found(module: str, folder: Path) -> tuple[Path | None, bool]:
    """The file of a module, None for one without text; and whether it is a file here, not an installed package."""
    places: list[str] | None = [str(folder), *sys.path]
    whole = ""
    spec = None
    for word in module.split("."):
        whole = f"{whole}.{word}".lstrip(".")
        spec = PathFinder.find_spec(whole, places) if places is not None else None
        if spec is None:
            raise UsageError(
                f"{module}: no module `{whole}` here or among the installed packages",
                hint=f"start the command in the folder of {whole.partition('.')[0]}.py, or pip install it",
            )
        places = list(spec.submodule_search_locations) if spec.submodule_search_locations else None
    path = Path(spec.origin) if spec is not None and spec.origin else None
    if path is None or path.suffix != ".py":
        return None, False
    return path, path.is_relative_to(folder) and not any(
        entry and Path(entry) != folder and path.is_relative_to(entry) for entry in sys.path
    )


def _with_imports(path: Path, folder: Path) -> dict[str, Path]:
    """A file and what it imports from its folder: modules, and packages as a whole."""
    waiting = [path]
    files: dict[str, Path] = {}
    while waiting and len(files) <= MOST_FILES:
        file = waiting.pop()
        name = str(file.relative_to(folder))
        if name in files or not file.is_file():
            continue
        files[name] = file
        top = folder / file.relative_to(folder).parts[0]
        waiting += sorted(itertools.islice(top.rglob("*.py"), MOST_FILES)) if top.is_dir() else ()
        for other in read_module(file).imports:
            waiting += [folder / f"{other}.py", *sorted(_of_package(folder / other))]
    return files


def _of_package(folder: Path) -> Iterator[Path]:
    return itertools.islice(folder.rglob("*.py"), MOST_FILES)
