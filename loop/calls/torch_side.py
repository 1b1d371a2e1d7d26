"""Where torch is known: element types, tensors to bytes and back, functions and classes of the user's."""

import contextlib
import copy
import importlib
import importlib.util
import inspect
import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor

from loop.calls import own_modules
from loop.calls.call import TensorFile
from loop.calls.own_modules import OWN
from loop.calls.refusal import Refused
from loop.model.dtypes import ITEM_SIZES, Dtype

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_SIZES}
NAMES: dict[torch.dtype, Dtype] = {getattr(torch, name): name for name in ITEM_SIZES}
WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types by their size, as which numpy takes the elements of any other, whatever the strides."""
BUNDLED = {
    "attention_reference": "loop.workers.attention:eager",
    "attention_plain": "loop.workers.attention:eager",
    "torch_sdpa": "loop.workers.attention:torch_sdpa",
}
PARTS = ("attention_split_partial", "attention_split_reduce", "attention_partials", "attention_partial_form")
BUNDLED |= {name: f"loop.workers.attention:{name}" for name in PARTS}
"""Functions that a target names without a module. The reference is attention written out, given float64."""
PROPERTIES = (
    "softmax_rows",
    "key_permutation",
    "logit_shift",
    "linear_in_v",
    "causal_prefix",
    "split_merge",
    "shared_heads",
    "by_hand",
)
BUNDLED |= {name: f"loop.workers.attention_properties:{name}" for name in PROPERTIES}
MOVED = {"loop.bench.child.attention": "loop.workers.attention"}
"""Modules of ours that manifests of an earlier release name, and where they are now."""

FEW_WEIGHTS, MOST_WEIGHTS = 1 << 20, 1 << 30
"""Elements of a module between which it is kept: fewer are made as quickly as copied, more take too much room."""
SOURCES = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)
"""Sources of random numbers: one of a module may be that of the whole process."""

Function = Callable[..., Any]


def use_threads(threads: int) -> None:
    """Let torch use that many threads, and no gradients."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def give_back_memory() -> None:
    """Let other processes have what torch keeps of a GPU and does not need; nothing where none was used."""
    with contextlib.suppress(RuntimeError):  # A reference may have left the GPU in error.
        torch.cuda.empty_cache()


def find(name: str) -> Function:
    """A bundled function by name, or `module:function`."""
    module, colon, function = BUNDLED.get(name, name).partition(":")
    if not colon:
        known = ", ".join(BUNDLED)
        raise Refused(f"unknown function {name}: expected one of {known}, or module:function")
    try:
        return getattr(import_module(MOVED.get(module, module)), function)  # type: ignore[no-any-return]
    except Exception as error:
        said = OWN.said(f"{type(error).__name__}: {error}{_line(error)}")
        raise Refused(f"cannot import {name}: {said}") from error


def _line(error: Exception) -> str:
    """Where in a file of the user's an import failed, as in ` (task.py:3)`; empty where nobody knows."""
    ours = Path(__file__).parent.parent
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = (one for one in frames if one.filename.endswith(".py") and "importlib" not in one.filename)
    last = next((one for one in places if one.filename != own_modules.__file__), None)
    if isinstance(error, SyntaxError) or last is None or ours in Path(last.filename).parents:
        return ""
    return f" ({Path(last.filename).resolve().name}:{last.lineno})"


def takes_sizes(function: Function) -> bool:
    """Whether a function of a target asks for the size of each dimension: its inputs do not tell them all."""
    given = function.keywords if isinstance(function, partial) else {}
    try:
        return "sizes" in inspect.signature(function).parameters and "sizes" not in given
    except ValueError:  # A function written in C does not say.
        return False


def window(flat: Tensor, tensor: TensorFile) -> Tensor:
    """The part of a file whose answer the judge knows."""
    return flat[tensor.offset : tensor.offset + tensor.elements].reshape(tensor.shape)


def write_tensor(path: str, tensor: Tensor) -> None:
    """Write a tensor's bytes, C order."""
    Path(path).write_bytes(bytes_of(tensor))


def read_tensor(tensor: TensorFile, path: str = "") -> Tensor:
    """Read what `write_tensor` wrote, to its own path or another; Refused when the file has another size."""
    with open(path or tensor.path, "rb") as file:
        found = os.fstat(file.fileno()).st_size
        read = torch.empty(tensor.size, dtype=torch.uint8)
        if found != tensor.size or file.readinto(memoryview(read.numpy())) != tensor.size:  # type: ignore[arg-type]
            raise Refused(f"wrong shape: expected {tensor.size} bytes, got {found}")
    return read.view(TORCH_DTYPES[tensor.dtype]).reshape(tensor.shape)


def import_module(name: str) -> ModuleType:
    """A module of the user's, or a file that is one: nothing is written beside it."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return import_file(name) if name.endswith(".py") else importlib.import_module(OWN.name_of(name))
    finally:
        sys.dont_write_bytecode = before


def import_file(path: str) -> ModuleType:
    """A file as a module that is called after its whole path; what lies beside it can be imported."""
    whole = path if os.path.isabs(path) else _found(path)
    if whole in sys.modules:
        return sys.modules[whole]
    if not Path(whole).is_file():
        raise FileNotFoundError(f"{path} is not there")
    OWN.add(str(Path(whole).parent), last=True)
    spec = OWN.spec(whole, whole)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[whole] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[whole]
        raise
    return module


def _found(path: str) -> str:
    """A file below one of the folders that modules are looked for in: the target's comes first."""
    places = [os.path.join(folder, path) for folder in (*OWN.folders, *sys.path)]
    return os.path.abspath(next((place for place in places if os.path.isfile(place)), path))


def seed_all(seed: int) -> None:
    """Let every draw of random numbers follow from a seed."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def draw_others() -> None:
    """Have the next draw of random numbers be another than it would be."""
    random.random(), numpy.random.random(), torch.rand(1)


def made(kind: Any, arguments: Any, seed: int) -> Any:
    """One of a class, its arguments as `arguments()` gives them, both right after seeding."""
    seed_all(seed)
    given = arguments() if arguments else ()
    seed_all(seed)
    one = kind(**given) if isinstance(given, dict) else kind(*given)
    if isinstance(one, torch.nn.Module):
        one.requires_grad_(False)
    return one


class Maker:
    """Makes objects of classes. Of a large module the last is kept as it was made; those that follow are copies,
    for to draw a hundred million weights takes seconds."""

    def __init__(self) -> None:
        self.kept: tuple[Any, int, torch.nn.Module, Any] | None = None
        """Class, seed, module, and where the random numbers stood then."""

    def made(self, kind: Any, arguments: Any, seed: int) -> Any:
        """The same as `made` gives, and random numbers go on as after that."""
        if self.kept and self.kept[:2] == (kind, seed):
            seed_all(seed)
            _draw_on_from(self.kept[3])
            return copy.deepcopy(self.kept[2])
        one = made(kind, arguments, seed)
        if isinstance(one, torch.nn.Module):
            self.kept = None
            if FEW_WEIGHTS < sum(tensor.numel() for tensor in _held(one)) < MOST_WEIGHTS:
                with contextlib.suppress(Exception):  # It holds what cannot be copied: each is made.
                    _Copied(BytesIO()).dump(one)
                    self.kept = kind, seed, copy.deepcopy(one), _drawn_so_far()
        return one


def _held(module: torch.nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


class _Copied(pickle.Pickler):
    """Raises on what a copy could share with the module that it is made of: a source of random numbers, and a
    function defined in place, which may know the module itself."""

    def persistent_id(self, one: Any) -> str | None:
        """Empty for what is passed over: tensors, classes and functions that a copy may share."""
        if isinstance(one, SOURCES) or (isinstance(one, FunctionType) and "<locals>" in one.__qualname__):
            raise pickle.PicklingError(f"{one} may be shared")
        return "" if isinstance(one, (Tensor, type, FunctionType)) else None


def _drawn_so_far() -> Any:
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state()


def _draw_on_from(state: Any) -> None:
    random.setstate(state[0])
    numpy.random.set_state(state[1])
    torch.set_rng_state(state[2])


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are of one shape and type and the same bit by bit, on any device."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = bits_of(one), bits_of(other)
    return torch.equal(a, b.to(a.device))


def bits_of(tensor: Tensor) -> Tensor:
    """A tensor's elements as whole numbers of their size; a complex number is two."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.contiguous().view(WHOLE[plain.element_size()])


def bytes_of(tensor: Tensor) -> bytes:
    """A tensor's bytes, C order."""
    return tensor.resolve_neg().view(WHOLE[tensor.element_size()]).numpy().tobytes()
