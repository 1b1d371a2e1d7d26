"""A target's baseline under `torch.compile`, for each shape. Workers load this module by name."""

import functools
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
    """Wrap a function in `torch.compile`; for a class, wrap the `forward` of its instances."""
    if not inspect.isclass(function):
        return torch.compile(function, dynamic=False)

    class UnderCompile(function):  # type: ignore[misc]
        @functools.cached_property
        def compiled_forward(self) -> Any:
            """The class's own `forward`, compiled once for each instance."""
            return torch.compile(super().forward, dynamic=False)

        def forward(self, *positional: Any, **keywords: Any) -> Any:
            """Call the compiled `forward`."""
            return self.compiled_forward(*positional, **keywords)

    return UnderCompile


baseline = compile_function(torch_side.find_function(os.environ["LOOP_COMPILES"]))
