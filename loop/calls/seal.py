"""Detects that a variant replaced functions that time and judge it.

A Python variant shares a process with the clock. Before the variant is imported, the seal records the functions
that time, read and reply; each reply compares them. It catches ordinary patching. A variant that patches the seal
itself escapes it, but not the session's clock, the separate judge and the fresh inputs.
"""

import builtins
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import reduce
from types import FunctionType
from typing import Any

MODULES = (time, json, hashlib)
BUILTINS = (
    "open",
    "bytes",
    "len",
    "range",
    "min",
    "max",
    "sum",
    "type",
    "isinstance",
    "float",
    "int",
)
OS = ("read", "write", "fdopen", "open", "close")
TORCH: tuple[str, ...] = (
    "cuda.Event",
    "cuda.Event.record",
    "cuda.Event.elapsed_time",
    "cuda.CUDAGraph.replay",
)
TORCH += (
    "cuda.synchronize",
    "cuda.current_stream",
    "Tensor.cpu",
    "Tensor.to",
    "Tensor.contiguous",
    "Tensor.view",
)
TORCH += (
    "Tensor.numpy",
    "Tensor.copy_",
    "Tensor.as_strided",
    "frombuffer",
    "from_numpy",
    "as_tensor",
)
TORCH += ("set_num_threads",)
OWN = ("loop.calls", "loop.workers", "loop.mistakes")
"""Packages of `loop` whose code runs in a worker."""


def _watched_functions() -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield (name for a message, namespace, key in it) for each function to watch."""
    own_modules = [
        (name, module) for name, module in sorted(sys.modules.items()) if name.startswith(OWN)
    ]
    yield from ((f"module {name}", sys.modules, name) for name, _ in own_modules)
    yield from ((f"builtins.{name}", vars(builtins), name) for name in BUILTINS)
    yield from ((f"os.{name}", vars(os), name) for name in OS)
    for module in (*MODULES, *(module for _, module in own_modules)):
        for name, value in list(vars(module).items()):
            full_name = f"{module.__name__}.{name}"
            if callable(value):
                yield full_name, vars(module), name
            if isinstance(value, type) and module.__name__.startswith("loop."):
                for key, member in vars(value).items():
                    if isinstance(member, FunctionType):
                        yield f"{full_name}.{key}", vars(value), key
    torch = sys.modules.get("torch")
    for name in TORCH if torch else ():
        *path, key = name.split(".")
        owner = reduce(lambda value, attribute: getattr(value, attribute, None), path, torch)
        yield f"torch.{name}", getattr(owner, "__dict__", {}), key


class Seal:
    """The watched functions as they were before a variant was loaded."""

    def __init__(self) -> None:
        self._functions = [
            (name, space, key, space.get(key)) for name, space, key in _watched_functions()
        ]
        """The value is None for what a class of torch inherits: a replacement is added to the class."""
        self._codes = []
        """(name, function, its compiled code): code can be replaced within the same function."""
        for name, _, _, function in self._functions:
            if isinstance(function, FunctionType):
                self._codes.append((f"{name} (code)", function, function.__code__))

    def replaced_functions(self) -> list[str]:
        """Names of watched functions that were replaced since this seal; empty for none."""
        names = [name for name, space, key, value in self._functions if space.get(key) is not value]
        return names + [
            name for name, function, code in self._codes if function.__code__ is not code
        ]
