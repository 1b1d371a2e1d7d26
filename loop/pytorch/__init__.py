"""The door for a user's own program: a compiled variant as an operator of PyTorch.

    from loop.pytorch import operator

    double = operator("right", "my-target")
    y = double(x)

Begin with `operator` below. `c_dispatch` declares the operator to PyTorch, which calls the kernel in C, without
Python. Where that is not available, `operator` raises Unavailable.
"""

import threading
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from loop.base.errors import LoopError, UsageError
from loop.base.places import Project, find_project
from loop.calls.library import Compiled
from loop.library import targets, trust
from loop.library.definitions import name_hint
from loop.model.target import CAbiVariant
from loop.pytorch.c_dispatch import declare, open_library
from loop.pytorch.contract import Contract, contract_of, meanings_of_words, wrong_value

__all__ = ["Operator", "operator"]
_lock = threading.Lock()
_operators: dict[tuple[Path, str], "Operator"] = {}


class Operator:
    """A compiled variant as a callable on tensors. Forward only: it has no gradient."""

    def __init__(self, contract: Contract, library: Compiled, op: OpOverload) -> None:
        self.contract, self.library = contract, library
        self.op = op
        """Overload in `torch.ops`: attributes by position, a choice as index, no number as NaN."""
        self.raw: Callable[..., Tensor] = getattr(op, "_op", op)
        """C++ function below `op`, for fast eager calls. `torch.compile` needs `op` itself."""
        self.architecture: str | None = None
        """Built for `cpu` or a compute capability such as `sm_89`; None if unknown."""
        self._count = len(contract.inputs)
        self._meanings = {name: meanings_of_words(attribute) for name, attribute in contract.attributes.items()}
        self._defaults = {name: known[None] for name, known in self._meanings.items()}
        self._numbers = tuple(
            name for name, attribute in contract.attributes.items() if attribute.kind == "number"
        )
        usual: list[dict[str, object]] = [{}]
        for name, known in self._meanings.items():
            usual += [{name: value} for value in known if value is not None and name not in self._numbers]
        self._known = {tuple(attributes.items()): self._values(attributes) for attributes in usual}
        """Attribute sets with values computed before: none, or one flag or choice (faster)."""
        self.__doc__ = f"{contract.schema}\n\nOn {contract.device}, {' or '.join(contract.dtypes)}; forward only."

    def __call__(self, *tensors: Tensor, **attributes: object) -> Tensor:
        """Call the kernel; returns the output in C order, on the current stream of the inputs'
        device.

        `tensors`: inputs in the signature's order. `attributes`: by the manifest's names: flags as
        bool, choices as words, numbers as float; None is the default. Raises RuntimeError for
        tensors that do not fit, TypeError for arguments that are not tensors, and TypeError or
        ValueError for wrong attributes.
        """
        if len(tensors) != self._count or not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise self._no_tensors(tensors)
        try:
            values = self._known.get(tuple(attributes.items()))
        except TypeError:  # An unhashable value is handled by `_values`.
            values = None
        call = self.op if torch.compiler.is_compiling() else self.raw
        output: Tensor = call(*tensors, *(self._values(attributes) if values is None else values))
        return output

    def _values(self, attributes: dict[str, object]) -> tuple[Any, ...]:
        """Values of all attributes in the signature's order. Raises TypeError or ValueError."""
        values = {name: self._value(name, value) for name, value in attributes.items()}
        return tuple({**self._defaults, **values}.values())

    def _value(self, name: str, value: object) -> float:
        """Convert an attribute's value to a number. Raises TypeError or ValueError."""
        if name not in self._meanings:
            there = ", ".join(self._meanings) or "none"
            raise TypeError(f"{self.contract.title}: no attribute {name!r}; there are: {there}")
        if name in self._numbers and isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
        try:
            return self._meanings[name][value]  # Also matches numpy booleans, which equal True and False.
        except (KeyError, TypeError):
            raise wrong_value(name, self.contract.attributes[name], value) from None

    def _no_tensors(self, arguments: Sequence[object]) -> TypeError:
        """Make the error for a wrong number of tensors, or for an argument that is not a tensor."""
        inputs, named = ", ".join(self.contract.inputs), ", ".join(self.contract.attributes)
        tensors = "1 tensor" if self._count == 1 else f"{self._count} tensors"
        wrong = f"expected {tensors} ({inputs}), got {len(arguments)}"
        if named and len(arguments) > self._count:
            wrong += f"; attributes are given by name: {named}"
        if len(arguments) == self._count:
            pairs = zip(self.contract.inputs, arguments, strict=True)
            name, value = next((name, value) for name, value in pairs if not isinstance(value, Tensor))
            wrong = f"{name}: expected a tensor, got {'None' if value is None else type(value).__name__}"
        return TypeError(f"{self.contract.title}: {wrong}")

    def __repr__(self) -> str:
        return f"<operator {self.contract.title}>"


def operator(variant: str, target: str | Path | None = None, device: str | torch.device | None = None) -> Operator:
    """Make the operator of a compiled variant. Builds it if it is not in the cache; registers it
    once a process.

    `target`: folder with a manifest; default ./target.yaml, otherwise the bundled target. `device`:
    where it runs, such as `cpu` or `cuda:1`; default: the variant's device. It is built for that
    GPU's compute capability. Later calls return the same operator, even if the sources have
    changed. Raises LoopError if the variant does not exist, does not run on the device, was built
    for another GPU or does not compile, and if the definitions are not trusted (`loop trust`).
    """
    try:
        chosen = find_project(Path(target) if target is not None else None, Path.cwd())
        with _lock:
            key = (chosen.target.resolve(), variant)
            if key not in _operators:
                _operators[key] = _make(chosen, variant, device)
            known = _operators[key]
            where = torch.device(known.contract.device if device is None else device)
            architecture = _architecture(variant, known.contract.device, where)
            if device is not None and known.architecture not in (None, architecture):
                raise UsageError(
                    f"variant {variant} was built for {known.architecture} in this process, and {where} is "
                    f"{architecture}",
                    hint="an operator is made once: use another process for another kind of GPU",
                )
            return known
    except LoopError as error:
        if error.hint:
            error.add_note(error.hint)
        raise


def _make(chosen: Project, name: str, device: str | torch.device | None) -> Operator:
    """Check that the variant can be an operator; build, load and declare it."""
    target = targets.read_target(chosen).value
    variant = target.variants.get(name)
    if variant is None:
        raise UsageError(f"target {target.name} has no variant {name!r}", hint=name_hint(name, target.variants))
    if not isinstance(variant, CAbiVariant):
        compiled = [key for key, other in target.variants.items() if isinstance(other, CAbiVariant)]
        message = f"variant {name} is of kind {variant.kind}, and an operator is made of a compiled one"
        raise UsageError(message, hint=name_hint(name, compiled))
    where = torch.device(variant.device if device is None else device)
    architecture = _architecture(name, variant.device, where)
    if not trust.is_trusted(chosen):
        raise trust.untrusted_error(chosen)
    contract = contract_of(target, name, variant)
    for (folder, _), other in _operators.items():
        if other.contract.space == contract.space and folder != chosen.target.resolve():
            raise UsageError(
                f"torch.ops.{contract.space} is that of the target in {folder} already",
                hint=f"give the one in {chosen.target} another `name`",
            )
    library = open_library(name, target.compiled_variant(name, architecture), chosen.target)
    result = Operator(contract, library, declare(contract, library))
    result.architecture = architecture
    return result


def _architecture(name: str, right: str, where: torch.device) -> str:
    """Compiler's name of a device, such as `sm_89` or `cpu`. `right`: type of device the variant
    `name` needs. Raises LoopError if `where` has another, or torch sees no GPU."""
    if where.type != right:
        raise UsageError(f"variant {name} does not run on {where.type}", hint=f"device={right!r}")
    if where.type != "cuda":
        return where.type
    if not torch.cuda.is_available():
        raise UsageError(
            f"variant {name} runs on a GPU, and PyTorch sees none",
            hint=f"PyTorch {torch.__version__}: install one made for CUDA, and the NVIDIA driver",
        )
    return "sm_{}{}".format(*torch.cuda.get_device_capability(where))
