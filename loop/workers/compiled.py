"""A target's baseline under `torch.compile`, for each shape. Workers load this module by name."""

import inspect
import os
from typing import Any

import torch
import torch._dynamo

from loop.calls import torch_side

MAX_COMPILED_SHAPES = 256
"""Shapes for which one function is compiled. Beyond it this raises, where torch would run eager."""
SETTING_NAMES = ("cache_size_limit", "recompile_limit"), ("fail_on_cache_limit_hit", "fail_on_recompile_limit_hit")
"""Names of the two settings, old and new, in torch._dynamo.config."""
for names, value in zip(SETTING_NAMES, (MAX_COMPILED_SHAPES, True), strict=True):
    for name in names:
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, value)


def compile_function(function: Any) -> Any:
    """Wrap a function in `torch.compile`; of a class, return a subclass that compiles each instance."""
    if not inspect.isclass(function):
        return torch.compile(function, dynamic=False)

    class UnderCompile(function):  # type: ignore[misc]
        def __init__(self, *positional: Any, **keywords: Any) -> None:
            super().__init__(*positional, **keywords)
            self.compile(dynamic=False)

    return UnderCompile


baseline = compile_function(torch_side.find_function(os.environ["LOOP_COMPILES"]))
