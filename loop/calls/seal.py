"""Detects that a variant replaced functions that time and judge it.

A Python variant shares a process with the clock. Before the variant is imported, the seal records
the functions that time, read and reply; each reply compares them. It catches ordinary patching. A
variant that patches the seal itself escapes it, but not the session's clock, the separate judge and
the fresh inputs.
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
BUILTINS = "open bytes len range min max sum type isinstance float int"
OS = "read write fdopen open close"
TORCH = "frombuffer from_numpy as_tensor set_num_threads cuda.synchronize cuda.current_stream"
TORCH += " cuda.Event cuda.Event.record cuda.Event.elapsed_time cuda.CUDAGraph.replay Tensor.cpu"
TORCH += " Tensor.to Tensor.contiguous Tensor.view Tensor.numpy Tensor.copy_ Tensor.as_strided"
OWN = ("loop.calls", "loop.workers", "loop.mistakes")  # Packages whose code runs in a worker.


def _watched_functions() -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield (name for a message, namespace, key in it) for each function to watch."""
    own_names = [name for name in sorted(sys.modules) if name.startswith(OWN)]
    yield from ((f"module {name}", sys.modules, name) for name in own_names)
    yield from ((f"builtins.{name}", vars(builtins), name) for name in BUILTINS.split())
    yield from ((f"os.{name}", vars(os), name) for name in OS.split())
    for module in (*MODULES, *(sys.modules[name] for name in own_names)):
        for name, value in list(vars(module).items()):
            full_name = f"{module.__name__}.{name}"
            if callable(value):
                yield full_name, vars(module), name
            if isinstance(value, type) and module.__name__.startswith("loop."):
                for key, member in vars(value).items():
                    if isinstance(member, FunctionType):
                        yield f"{full_name}.{key}", vars(value), key
    torch = sys.modules.get("torch")
    for name in TORCH.split() if torch else ():
        *path, key = name.split(".")
        owner = reduce(lambda value, attribute: getattr(value, attribute, None), path, torch)
        yield f"torch.{name}", getattr(owner, "__dict__", {}), key


class Seal:
    """The watched functions as they were before a variant was loaded."""

    def __init__(self) -> None:
        self._functions: list[tuple[str, Mapping[str, Any], str, Any]] = []
        """(name, namespace, key, value); None for what a class of torch inherits."""
        self._codes = []  # (name, function, its code): code can be replaced within a function.
        for name, space, key in _watched_functions():
            function = space.get(key)
            self._functions.append((name, space, key, function))
            if isinstance(function, FunctionType):
                self._codes.append((f"{name} (code)", function, function.__code__))

    def replaced_functions(self) -> list[str]:
        """Names of watched functions that were replaced since this seal; empty for none."""
        names = [name for name, space, key, value in self._functions if space.get(key) is not value]
        names += [name for name, function, code in self._codes if function.__code__ is not code]
        return names
