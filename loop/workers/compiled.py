"""A target's baseline under `torch.compile`, for each shape by itself. A worker loads it by this module's name."""

import functools
import inspect
import os
from typing import Any

import torch
import torch._dynamo

from loop.calls import torch_side

LIMIT = 256
"""Shapes that one function is compiled for. Beyond them torch would call it as it is: that is an error instead."""
NAMES = ("cache_size_limit", "recompile_limit"), ("fail_on_cache_limit_hit", "fail_on_recompile_limit_hit")
"""Settings by the names that any version of torch has for them."""
for names, value in zip(NAMES, (LIMIT, True), strict=True):
    for name in names:
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, value)


def under_compile(target: Any) -> Any:
    """A function under `torch.compile`, or a class whose forward is: what it holds is made as before."""
    if not inspect.isclass(target):
        return torch.compile(target, dynamic=False)

    class UnderCompile(target):  # type: ignore[misc]
        @functools.cached_property
        def compiled_forward(self) -> Any:
            return torch.compile(super().forward, dynamic=False)

        def forward(self, *positional: Any, **keywords: Any) -> Any:
            return self.compiled_forward(*positional, **keywords)

    return UnderCompile


baseline = under_compile(torch_side.find_function(os.environ["LOOP_COMPILES"]))
