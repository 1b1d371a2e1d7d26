"""The door for a user's own program: a compiled variant as an operator of PyTorch.

    from loop.pytorch import operator

    double = operator("right", "my-target")
    y = double(x)

Begin with `operator` below. `c_dispatch` declares the operator to PyTorch, which calls the kernel
in C, without Python. Where that is not available, `operator` raises Unavailable.
"""

import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.calls.call import LibraryTerms, Refused
from loop.calls.library import Compiled
from loop.library import targets, trust
from loop.library.definitions import Project, find_project, name_hint
from loop.model.target import CAbiVariant
from loop.pytorch.c_dispatch import Contract, build_variant, contract_of, declare, number_for

__all__ = ["Operator", "operator"]
_lock = threading.Lock()
_operators: dict[tuple[Path, str], "Operator"] = {}


class Operator:
    """A compiled variant as a callable on tensors. Forward only: it has no gradient."""

    def __init__(self, contract: Contract, op: OpOverload, architecture: str) -> None:
        self.contract = contract
        self.op = op  # In `torch.ops`: attributes by position, choices by index, NaN for none.
        self.raw: Callable[..., Tensor] = getattr(op, "_op", op)
        """C++ function below `op`, for fast eager calls. `torch.compile` needs `op` itself."""
        self.architecture = architecture  # Built for `cpu` or a compute capability such as `sm_89`.
        self._attributes = dict(contract.signature.attributes)
        self._recent_values = lru_cache(64, typed=True)(self._attribute_values)
        """The numbers of earlier calls, for speed."""
        types = " or ".join(contract.variant.dtypes)
        self.__doc__ = f"{contract.schema}\n\nOn {contract.variant.device}, {types}; forward only."

    def __call__(self, *tensors: Tensor, **attributes: object) -> Tensor:
        """Call the kernel on the current stream of the inputs' device. Returns the output in C
        order. `tensors`: inputs in the signature's order. `attributes`: by the manifest's names:
        flags as bool, choices as words, numbers as float; None is the default. RuntimeError:
        tensors that do not fit. TypeError: no tensors. TypeError, ValueError: wrong attributes."""
        names = self.contract.signature.inputs
        if len(tensors) != len(names) or not all(isinstance(tensor, Tensor) for tensor in tensors):
            types = ", ".join(type(value).__name__ for value in tensors)
            problem = f"expected tensors ({', '.join(names)}), got ({types})"
            raise TypeError(f"{self.contract.title}: {problem}; attributes are given by name")
        if torch.compiler.is_compiling():  # A compiler needs `op`, and no cache.
            traced: Tensor = self.op(*tensors, *self._attribute_values(**attributes))
            return traced
        try:
            values = self._recent_values(**attributes)
        except TypeError:  # A wrong name or, in the cache only, a value that cannot be hashed.
            values = self._attribute_values(**attributes)
        return self.raw(*tensors, *values)

    def _attribute_values(self, /, **attributes: object) -> tuple[Any, ...]:
        """Numbers for all attributes in the signature's order, defaults included. `attributes`: the
        values that the caller wrote, by name. Raises TypeError or ValueError for a wrong one."""
        for name in attributes:
            if name not in self._attributes:
                names = ", ".join(self._attributes) or "none"
                raise TypeError(f"{self.contract.title}: no attribute {name!r}; there are: {names}")
        items = self._attributes.items()
        values = [number_for(name, attribute, attributes.get(name)) for name, attribute in items]
        return tuple(values)

    def __repr__(self) -> str:
        return f"<operator {self.contract.title}>"


def operator(
    variant: str, target: str | Path | None = None, device: str | torch.device | None = None
) -> Operator:
    """Make a compiled variant's operator: build it or take it from the cache; register it once.
    `target`: folder with a manifest; default ./target.yaml, otherwise the bundled target. `device`:
    where it runs, such as `cpu` or `cuda:1`; default: the variant's device. It is built for that
    GPU's compute capability. Later calls return the same operator, even if the sources have
    changed. Raises LoopError if the variant does not exist, does not run on the device, was built
    for another GPU or does not compile, and if the definitions are not trusted (`loop trust`)."""
    try:
        definitions = find_project(Path(target) if target is not None else None, Path.cwd())
        with _lock:
            key = (definitions.target.resolve(), variant)
            if key not in _operators:
                _operators[key] = _make_operator(definitions, variant, device)
            cached = _operators[key]
            own_device = cached.contract.variant.device
            torch_device = torch.device(own_device if device is None else device)
            architecture = _architecture(variant, own_device, torch_device)
            if device is not None and cached.architecture != architecture:
                problem = f"was built for {cached.architecture} in this process"
                message = f"variant {variant} {problem}, and {torch_device} is {architecture}"
                hint = "an operator is made once: use another process for another kind of GPU"
                raise UsageError(message, hint=hint)
            return cached
    except LoopError as error:
        if error.hint:
            error.add_note(error.hint)
        raise


def _make_operator(definitions: Project, name: str, device: str | torch.device | None) -> Operator:
    """Check that the variant `name` can be an operator; build, load and declare it. `definitions`:
    the folder of its target. `device`: as in `operator`. Raises LoopError as `operator` does."""
    target = targets.read_target(definitions).value
    variant = target.variants.get(name)
    if variant is None:
        message = f"target {target.name} has no variant {name!r}"
        raise UsageError(message, hint=name_hint(name, target.variants))
    if not isinstance(variant, CAbiVariant):
        compiled = [key for key, other in target.variants.items() if isinstance(other, CAbiVariant)]
        message = f"variant {name} is of kind {variant.kind}; an operator is made of a compiled one"
        raise UsageError(message, hint=name_hint(name, compiled))
    torch_device = torch.device(variant.device if device is None else device)
    architecture = _architecture(name, variant.device, torch_device)
    if not trust.is_trusted(definitions):
        raise trust.untrusted_error(definitions)
    contract = contract_of(target, name, variant)
    for (folder, _), other_operator in _operators.items():
        is_other_target = folder != definitions.target.resolve()
        if is_other_target and other_operator.contract.namespace == contract.namespace:
            message = f"torch.ops.{contract.namespace} is that of the target in {folder} already"
            raise UsageError(message, hint=f"give the one in {definitions.target} another `name`")
    built = build_variant(name, target.compiled_variant(name, architecture), definitions.target)
    terms = LibraryTerms(variant.device, variant.entry, built.library, built.build_id)
    try:
        library = Compiled(terms)
    except Refused as refused:
        raise WorkFailed(f"{name}: {refused}") from refused
    return Operator(contract, declare(contract, library), architecture)


def _architecture(variant: str, required_type: str, device: torch.device) -> str:
    """Compiler's name of a device, such as `sm_89` or `cpu`. Raises LoopError if it is not of the
    type that the variant needs, or if torch sees no GPU."""
    if device.type != required_type:
        message = f"variant {variant} does not run on {device.type}"
        raise UsageError(message, hint=f"device={required_type!r}")
    if device.type != "cuda":
        return device.type
    if not torch.cuda.is_available():
        hint = f"PyTorch {torch.__version__}: install one made for CUDA, and the NVIDIA driver"
        raise UsageError(f"variant {variant} runs on a GPU, and PyTorch sees none", hint=hint)
    return "sm_{}{}".format(*torch.cuda.get_device_capability(device))
