"""Operators to try: the bundled target's and small ones, each with its kernel."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.base.places import shipped
from loop.library import trust
from loop.library.definitions import find_project
from loop.pytorch import Operator, operator
from tests.attention import eager

BUNDLED = shipped("kernels/attention")


@cache
def attention() -> Operator:
    """The bundled processor's kernel."""
    return operator("cpu", BUNDLED)


def allow(folder: Path) -> Path:
    """Trust the definitions in a folder."""
    chosen = find_project(folder, folder)
    trust.grant(chosen.target, trust.definition_hash(chosen))
    return folder


def make_inputs(
    *shape: int, keys: int | None = None, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> list[Tensor]:
    """Unit normals: q [B, H, Sq, D], k and v [B, H, keys, D]."""
    b, h, s, d = shape
    generator = torch.Generator(device).manual_seed(s)
    sizes = (s, s if keys is None else keys, s if keys is None else keys)
    tensors = [torch.randn(b, h, n, d, generator=generator, device=device) for n in sizes]
    return [tensor.to(dtype) for tensor in tensors]


def exact(inputs: Sequence[Tensor], **attributes: Any) -> Tensor:
    """The reference in float64."""
    options = {"causal": False, "alignment": "top_left", "scale": None, **attributes}
    return eager(*(tensor.double() for tensor in inputs), **options)  # type: ignore[no-any-return]


def worst(output: Tensor, expected: Tensor) -> float:
    """The largest difference, as a part of 1 + the wanted value; infinite where shape or device differ."""
    if output.shape != expected.shape or output.device != expected.device:
        return math.inf
    return float(((output.double() - expected).abs() / (1 + expected.abs())).max()) if output.numel() else 0.0


def raw(**options: Any) -> tuple[bool, int, float]:
    """Attributes as the raw operator takes them: causal, alignment, scale."""
    return options.get("causal", False), options.get("alignment", 0), options.get("scale", math.nan)
