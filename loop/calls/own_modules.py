"""Imports of a target's files give the target's own modules, whatever other module has the same name.

Python, torch and installed packages keep theirs: the target's folders come last on the path. A module whose name
somebody else has is imported as `NAME_of_the_target`; an import of NAME in the target's files gives that one.
"""

import builtins
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

SUFFIX = "_of_the_target"
LIBRARIES = ("torch", "numpy", "triton")
"""What the interface of kernels is made of: `import torch` means the library, also beside a file `torch.py`."""


class OwnModules:
    """Finds modules in the folders of a target; Python asks it before its own finders."""

    def __init__(self) -> None:
        self.folders: list[str] = []
        """Searched in this order."""
        self.others: dict[str, str] = {}
        """Names of modules in these folders that another module has, and the other's file."""

    def add(self, folder: str, *, last: bool = False) -> None:
        """Search a folder for modules: before the other folders, or after them."""
        if folder in self.folders:
            return
        self.folders.insert(len(self.folders) if last else 0, folder)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            name = entry.name.removesuffix(".py")
            if name.isidentifier() and (name != entry.name or entry.is_dir()) and (other := self._elsewhere(name)):
                self.others[name] = other
        if folder not in sys.path:
            sys.path.append(folder)

    def name_of(self, name: str, importer: object = None) -> str:
        """The name under which a module of the target is imported; the name of any other module stays as it is.

        A file that imports its own name means the other module.
        """
        top, dot, rest = name.partition(".")
        if top not in self.others or (file := self._file(name)) is None or file == importer:
            return name
        return f"{top}{SUFFIX}{dot}{rest}"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the target is; None for any other. Python calls this."""
        name = fullname.rpartition(".")[2]
        if path is None and name in self.others:
            return None
        inside = tuple(folder + os.sep for folder in self.folders)
        places = (
            self.folders if path is None else [place for place in path if f"{place}{os.sep}".startswith(inside)]
        )
        name = name.removesuffix(SUFFIX)
        for place in places:
            if file := _file_in(place, name):
                return self.spec(fullname, file)
        folders = [folder for place in places if os.path.isdir(folder := os.path.join(place, name))]
        if path is not None or not fullname.endswith(SUFFIX) or not folders:
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = folders
        return spec

    def spec(self, fullname: str, file: str) -> ModuleSpec | None:
        """A file of the target as a module; its imports are the target's where another module has such a name."""
        loader = _Loader(fullname, file) if self.others else None
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)

    def explained(self, text: str) -> str:
        """A message about a module, with both files that may be meant where there are two."""
        for name, other in self.others.items():
            if name + SUFFIX in text:
                text = text.replace(name + SUFFIX, name)
                text += f"; `{name}` is {self._file(name)} here and not {other}: rename it if you mean that"
        return text

    def _file(self, name: str) -> str | None:
        """The target's file of a module."""
        path = name.replace(".", os.sep)
        return next((file for folder in self.folders if (file := _file_in(folder, path))), None)

    def _elsewhere(self, name: str) -> str:
        """The file of a module of this name that is not the target's; empty where there is none."""
        spec = getattr(sys.modules.get(name), "__spec__", None)
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = spec or next(filter(None, (finder.find_spec(name, None) for finder in finders)), None)
        if spec is None:
            return ""
        place = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
        own = [os.path.join(folder, name) for folder in self.folders]
        own += [file for folder in self.folders if (file := _file_in(folder, name))]
        return "" if os.path.realpath(place) in map(os.path.realpath, own) else place


OWN = OwnModules()


class _Loader(SourceFileLoader):
    """Runs a file of the target whose imports are the target's."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the file."""
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> Any:
    """What an `import` in a file of the target gives."""
    if level == 0 and name.partition(".")[0] not in LIBRARIES:
        name = OWN.name_of(name, (globals or {}).get("__file__"))
    return builtins.__import__(name, globals, locals, fromlist, level)


def _file_in(folder: str, path: str) -> str | None:
    """The file of a module in a folder: that of a package first, as Python has it."""
    files = (os.path.join(folder, path, "__init__.py"), os.path.join(folder, f"{path}.py"))
    return next((file for file in files if os.path.isfile(file)), None)
