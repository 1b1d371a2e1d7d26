"""A target's baseline under `torch.compile`. A worker loads it by this module's name."""

import functools
import inspect
import os
from typing import Any

import torch

from loop.calls import torch_side


def under_compile(found: Any) -> Any:
    """A function under `torch.compile`, or a class whose forward is: what it holds is made as before."""
    if not inspect.isclass(found):
        return torch.compile(found)

    class Compiled(found):  # type: ignore[misc]
        @functools.cached_property
        def compiled_forward(self) -> Any:
            return torch.compile(super().forward)

        def forward(self, *positional: Any, **keywords: Any) -> Any:
            return self.compiled_forward(*positional, **keywords)

    return Compiled


baseline = under_compile(torch_side.find(os.environ["LOOP_COMPILES"]))
