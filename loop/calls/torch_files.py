"""Functions and classes of a target: found in modules and in files, made under a seed."""

import importlib
import importlib.util
import os
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import torch


def import_module(name: str) -> ModuleType:
    """A module of the user's, or a file that is one: nothing is written beside it."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return import_file(name) if name.endswith(".py") else importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before


def import_file(path: str) -> ModuleType:
    """A file as a module that is called after its whole path; what lies beside it can be imported."""
    whole = path if os.path.isabs(path) else _found(path)
    if whole in sys.modules:
        return sys.modules[whole]
    spec = importlib.util.spec_from_file_location(whole, whole)
    if spec is None or spec.loader is None or not Path(whole).is_file():
        raise FileNotFoundError(f"{path} is not there")
    module = sys.modules[whole] = importlib.util.module_from_spec(spec)
    if (folder := str(Path(whole).parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[whole]
        raise
    return module


def _found(path: str) -> str:
    """A file below one of the folders that modules are looked for in: the target's comes first."""
    places = [os.path.join(folder, path) for folder in sys.path]
    return os.path.abspath(next((place for place in places if os.path.isfile(place)), path))


def seed_all(seed: int) -> None:
    """Let every draw of random numbers follow from a seed."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def made(kind: Any, arguments: Any, seed: int) -> Any:
    """One of a class, its arguments as `arguments()` gives them, both right after seeding."""
    seed_all(seed)
    given = arguments() if arguments else ()
    seed_all(seed)
    one = kind(**given) if isinstance(given, dict) else kind(*given)
    if isinstance(one, torch.nn.Module):
        one.requires_grad_(False)
    return one
