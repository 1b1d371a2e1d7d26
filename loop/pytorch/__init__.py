"""The door for a user's own program: a compiled variant as an operator of PyTorch.

    from loop.pytorch import operator

    double = operator("right", "my-target")
    y = double(x)

This room and the child processes are all that imports torch.
"""

import threading
from pathlib import Path

import torch
from torch import Tensor
from torch._ops import OpOverload

from loop import trust
from loop.errors import LoopError
from loop.library import targets
from loop.library.definitions import hint_for
from loop.model.target import CAbiVariant, Target
from loop.places import Project, project
from loop.pytorch.contract import Contract, contract_of, meanings, wrong_value
from loop.pytorch.library import KernelLibrary, open_library
from loop.pytorch.registration import Dispatch, declare, give_kernel

__all__ = ["Operator", "operator"]
_lock = threading.Lock()
_operators: dict[tuple[Path, str], "Operator"] = {}


class Operator:
    """A variant to be called on tensors. Forward only: no gradient comes through it."""

    def __init__(self, contract: Contract, library: KernelLibrary, op: OpOverload, why: str | None) -> None:
        self.contract, self.library = contract, library
        self.op = op
        """The raw overload in `torch.ops`: attributes by position, a choice as its index, NaN for no number."""
        self.dispatch: Dispatch = "python" if why else "c"
        """How a call reaches the kernel: `c` without Python, `python` where that cannot be had."""
        self.why = why
        """Why not without Python."""
        self._meanings = {name: meanings(one) for name, one in contract.attributes.items()}
        self._defaults = {name: known[None] for name, known in self._meanings.items()}
        self._numbers = tuple(name for name, one in contract.attributes.items() if one.kind == "number")
        self.__doc__ = f"{contract.schema}\n\nOn {contract.device}, {' or '.join(contract.dtypes)}; forward only."

    def __call__(self, *tensors: Tensor, **attributes: object) -> Tensor:
        """The output for input tensors in the signature's order: C order, on the current stream of their device.

        Attributes by the manifest's names: flags as bool, choices as words, numbers as float; None is the default.
        Raises RuntimeError for tensors that do not fit, TypeError and ValueError for attributes that do not.
        """
        values = self._defaults.copy()
        for name, said in attributes.items():
            known = self._meanings.get(name)
            values[name] = known[said] if known is not None and said in known else self._value(name, said)
        output: Tensor = self.op(*tensors, *values.values())
        return output

    def _value(self, name: str, said: object) -> float:
        """A number that an attribute is given; raises TypeError or ValueError for what is none."""
        if name not in self._meanings:
            there = ", ".join(self._meanings) or "none"
            raise TypeError(f"{self.contract.title}: no attribute {name!r}; there are: {there}")
        if name in self._numbers and isinstance(said, (int, float)) and not isinstance(said, bool):
            return float(said)
        raise wrong_value(name, self.contract.attributes[name], said)

    def __repr__(self) -> str:
        return f"<operator {self.contract.title}, dispatch {self.dispatch}>"


def operator(variant: str, target: str | Path | None = None, device: str | torch.device | None = None) -> Operator:
    """The operator of a compiled variant: built where it is not in the cache, registered once in a process.

    `target`: a folder with a manifest; default ./target.yaml, else the bundled target. `device`: where it has to
    run, as in `cpu` or `cuda:1`, by default where the variant does; it is built for that GPU's compute capability.
    The first call decides: later ones give the same operator, whatever became of the sources.
    Raises LoopError for a variant that is not there, does not run there or does not compile, and for definitions
    that have not been allowed (`loop trust`).
    """
    try:
        chosen = project(Path(target) if target is not None else None, Path.cwd())
        with _lock:
            key = (chosen.target.resolve(), variant)
            if key not in _operators:
                _operators[key] = _make(chosen, variant, device)
            return _operators[key]
    except LoopError as error:
        if error.hint:
            error.add_note(error.hint)
        raise


def _make(chosen: Project, name: str, device: str | torch.device | None) -> Operator:
    target = targets.target(chosen).value
    variant = _compiled(target, name)
    where = _place(name, variant, device)
    if not trust.is_trusted(chosen):
        raise trust.refusal(chosen)
    contract = contract_of(target, name, variant)
    _check_name(contract, chosen)
    library = open_library(name, target.compiled(name, _architecture(where)), chosen.target)
    return Operator(contract, library, declare(contract), give_kernel(contract, library))


def _compiled(target: Target, name: str) -> CAbiVariant:
    if name not in target.variants:
        hint = hint_for(name, target.variants)
        raise LoopError(f"target {target.name} has no variant {name!r}", hint=hint)
    variant = target.variants[name]
    if not isinstance(variant, CAbiVariant):
        raise LoopError(
            f"variant {name} is of kind {variant.kind}, and an operator is made of a compiled one",
            hint=hint_for(
                name, {key: one for key, one in target.variants.items() if isinstance(one, CAbiVariant)}
            ),
        )
    return variant


def _place(name: str, variant: CAbiVariant, device: str | torch.device | None) -> torch.device:
    where = torch.device(variant.device if device is None else device)
    if where.type != variant.device:
        raise LoopError(f"variant {name} does not run on {where.type}", hint=f"device={variant.device!r}")
    if where.type == "cuda" and not torch.cuda.is_available():
        raise LoopError(
            f"variant {name} runs on a GPU, and PyTorch sees none",
            hint=f"PyTorch {torch.__version__}: install one made for CUDA, and the NVIDIA driver",
        )
    return where


def _architecture(where: torch.device) -> str:
    """As compilers call it: `sm_89`."""
    return "sm_{}{}".format(*torch.cuda.get_device_capability(where)) if where.type == "cuda" else where.type


def _check_name(contract: Contract, chosen: Project) -> None:
    for (folder, _), other in _operators.items():
        if other.contract.space == contract.space and folder != chosen.target.resolve():
            raise LoopError(
                f"torch.ops.{contract.space} is that of the target in {folder} already",
                hint=f"give the one in {chosen.target} another `name`",
            )
