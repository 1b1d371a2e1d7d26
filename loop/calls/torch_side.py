"""Torch helpers: element types, tensors and bytes, loading the user's functions and classes."""

import importlib
import importlib.util
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy
import torch
from torch import Tensor

from loop.calls.call import Refused, TensorFile
from loop.calls.own_modules import describe_error, explain_shadowed_import, search_folder
from loop.model.dtypes import ITEM_SIZES, Dtype

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_SIZES}
DTYPE_NAMES: dict[torch.dtype, Dtype] = {getattr(torch, name): name for name in get_args(Dtype)}
INTEGER_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element to the integer type of that size, as which numpy reads any element."""
Function = Callable[..., Any]


def use_threads(threads: int) -> None:
    """Set torch's thread count and switch gradients off."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def find_function(name: str) -> Function:
    """Load the function `module:function` of a target. Raises Refused if it cannot be loaded, or if
    another module of that name was loaded before the target's own."""
    module, _, function = name.partition(":")
    try:
        target_function: Function = getattr(import_module(module), function)
        cause = explain_shadowed_import(module)
    except Exception as error:
        cause = explain_shadowed_import(module) or describe_error(error)
        raise Refused(f"cannot import {name}: {cause}") from error
    if cause:
        raise Refused(f"cannot import {name}: {cause}")
    return target_function


def import_module(name: str) -> ModuleType:
    """Import a user's module or file, without writing .pyc files next to it."""
    earlier_setting, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return import_file(name) if name.endswith(".py") else importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = earlier_setting


def import_file(path: str) -> ModuleType:
    """Import a file as a module named by its full path; it may import its neighbours. A relative
    path is searched on sys.path, where the target's folders come first. Raises FileNotFoundError."""
    candidates = [os.path.join(folder, path) for folder in sys.path]  # Of an absolute path: itself.
    full_path = os.path.abspath(next(filter(os.path.isfile, candidates), path))
    if full_path in sys.modules:
        return sys.modules[full_path]
    if not os.path.isfile(full_path):
        raise FileNotFoundError(f"{path} is not there")
    search_folder(os.path.dirname(full_path), comes_last=True)
    spec = importlib.util.spec_from_file_location(full_path, full_path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[full_path] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full_path]
        raise
    return module


def write_tensor(path: str, tensor: Tensor) -> None:
    """Write a tensor's bytes to a file, C order."""
    Path(path).write_bytes(bytes_of(tensor))


def read_tensor(tensor: TensorFile, path: str = "") -> Tensor:
    """Read a tensor from `path`, or from its own file. Raises Refused for another size."""
    data = numpy.fromfile(path or tensor.path, numpy.uint8)
    if data.nbytes != tensor.nbytes:
        raise Refused(f"wrong shape: expected {tensor.nbytes} bytes, got {data.nbytes}")
    return torch.from_numpy(data).view(TORCH_DTYPES[tensor.dtype]).reshape(tensor.shape)


def seed_all(seed: int) -> None:
    """Seed the random generators of Python, NumPy and torch."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def make_instance(cls: Any, arguments: Any, seed: int) -> Any:
    """Make an instance of a class; if it is a torch module, without gradients. `arguments`: function
    that returns the constructor's arguments (a sequence, or a dict by name); None: there are none.
    Both run right after seeding, so that all workers get the same weights."""
    seed_all(seed)
    values = arguments() if arguments else ()
    seed_all(seed)
    instance = cls(**values) if isinstance(values, dict) else cls(*values)
    if isinstance(instance, torch.nn.Module):
        instance.requires_grad_(False)
    return instance


def same_bits(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors have equal shape, type and bits, on any device."""
    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return False
    bits = bits_of(tensor)
    return torch.equal(bits, bits_of(other).to(bits.device))


def bits_of(tensor: Tensor) -> Tensor:
    """A tensor's elements as integers of the same size, C order; a complex number becomes two."""
    resolved = tensor.detach().resolve_conj().resolve_neg()
    if resolved.is_complex():
        resolved = torch.view_as_real(resolved)
    return resolved.contiguous().view(INTEGER_TYPES[resolved.element_size()])


def bytes_of(tensor: Tensor) -> bytes:
    """Bytes of a tensor on the host, C order."""
    return tensor.resolve_neg().view(INTEGER_TYPES[tensor.element_size()]).numpy().tobytes()
