"""Notices when a variant has replaced what it is timed and judged with.

A Python variant shares the process with the clock. The seal remembers the functions of the modules that time, read
and reply before the variant is imported, and compares afterwards. It finds what is patched in the ordinary way; a
variant that hunts for the seal itself can get round it. The parent's own clock, the judge in another process and
fresh values stand behind it.
"""

import builtins
import hashlib
import json
import os
import sys
import time
from types import FunctionType, ModuleType
from typing import Any

MODULES = (time, json, hashlib)
BUILTINS = ("open", "bytes", "len", "range", "min", "max", "sum", "type", "isinstance", "float", "int")
OS = ("read", "write", "fdopen", "open", "close")
TORCH: tuple[str, ...] = (
    "cuda.Event",
    "cuda.Event.record",
    "cuda.Event.elapsed_time",
    "cuda.CUDAGraph.replay",
    "cuda.synchronize",
    "cuda.current_stream",
    "Tensor.cpu",
    "Tensor.to",
    "Tensor.contiguous",
)
TORCH += ("Tensor.view", "Tensor.numpy", "Tensor.copy_", "Tensor.as_strided", "frombuffer", "set_num_threads")


OWN = ("loop.calls", "loop.workers", "loop.mistakes")
"""Rooms whose code runs in a worker."""


class Seal:
    """What stood where before a variant was loaded."""

    def __init__(self) -> None:
        self._found = dict(_functions())

    def broken(self) -> list[str]:
        """Names of functions that are not what they were."""
        now = dict(_functions())
        return [name for name, value in self._found.items() if now.get(name) is not value]


def _functions() -> list[tuple[str, Any]]:
    """Each function under its name; a function of ours also with its code."""
    own = [module for name, module in sorted(sys.modules.items()) if name.startswith(OWN)]
    found = [pair for module in (*MODULES, *own) for pair in _of(module)]
    found += [(f"builtins.{name}", getattr(builtins, name)) for name in BUILTINS]
    found += [(f"os.{name}", getattr(os, name)) for name in OS]
    return found + _torch_functions()


def _of(module: ModuleType) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in list(vars(module).items()):
        if not callable(value):
            continue
        found.append((f"{module.__name__}.{name}", value))
        if module.__name__.startswith("loop."):
            found += _methods(f"{module.__name__}.{name}", value)
    return found


def _methods(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, FunctionType):
        return [(f"{name} (code)", value.__code__)]
    if not isinstance(value, type):
        return []
    methods = [(key, each) for key, each in vars(value).items() if isinstance(each, FunctionType)]
    return [
        pair
        for key, each in methods
        for pair in ((f"{name}.{key}", each), (f"{name}.{key} (code)", each.__code__))
    ]


def _torch_functions() -> list[tuple[str, Any]]:
    torch = sys.modules.get("torch")
    found: list[tuple[str, Any]] = []
    for name in TORCH if torch else ():
        value: Any = torch
        for part in name.split("."):
            value = getattr(value, part, None)
        found.append((f"torch.{name}", value))
    return found
