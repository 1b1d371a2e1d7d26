"""Torch's element types, and a tensor as bytes."""

import torch
from torch import Tensor

from loop.model.dtypes import ITEM_SIZES, Dtype

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_SIZES}
NAMES: dict[torch.dtype, Dtype] = {getattr(torch, name): name for name in ITEM_SIZES}
WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types by their size, as which numpy takes the elements of any other, whatever the strides."""


def bytes_of(tensor: Tensor) -> bytes:
    """A tensor's bytes, C order."""
    return tensor.resolve_neg().view(WHOLE[tensor.element_size()]).numpy().tobytes()
