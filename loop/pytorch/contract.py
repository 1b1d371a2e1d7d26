"""What the operator of a variant takes and gives, read from the manifest's signature. No torch, nothing runs."""

import math
from dataclasses import dataclass

from loop.base.errors import UsageError
from loop.calls.call import MAX_RANK
from loop.model.dtypes import Device, Dtype
from loop.model.signature import OUTPUT, Attribute
from loop.model.target import CAbiVariant, Target

SCHEMA_TYPES = {"flag": "bool", "choice": "int", "number": "float"}
"""Kind of attribute to its type in an operator's schema."""


@dataclass(frozen=True)
class Contract:
    """An operator's name, and what a call of it has to satisfy."""

    space: str
    """Its namespace in `torch.ops`."""
    name: str
    """Its name in there: the variant's."""
    device: Device
    """Where its tensors have to be."""
    inputs: dict[str, tuple[str, ...]]
    """Input tensors: name to dimensions."""
    output: tuple[str, ...]
    """Dimensions of the output."""
    types: dict[str, Dtype]
    """Element types of tensors that do not have the call's: an input's name, or `output`."""
    dtypes: tuple[Dtype, ...]
    """Element types that a call may have."""
    attributes: dict[str, Attribute]
    """Values that are not tensors, in the order of the C interface."""

    @property
    def title(self) -> str:
        """`namespace::name`, as PyTorch writes it."""
        return f"{self.space}::{self.name}"

    @property
    def schema(self) -> str:
        """The raw operator: a choice is its index, a number that is not given NaN."""
        tensors = [f"Tensor {name}" for name in self.inputs]
        values = [f"{SCHEMA_TYPES[attribute.kind]} {name}" for name, attribute in self.attributes.items()]
        return f"{self.name}({', '.join(tensors + values)}) -> Tensor"

    @property
    def homes(self) -> dict[str, tuple[str, int]]:
        """Each dimension's first place: the input, and the axis there."""
        places: dict[str, tuple[str, int]] = {}
        for name, dimensions in self.inputs.items():
            for axis, dimension in enumerate(dimensions):
                places.setdefault(dimension, (name, axis))
        return places

    @property
    def only(self) -> Dtype | None:
        """The call's element type where no input has it."""
        return self.dtypes[0] if set(self.inputs) <= set(self.types) else None

    def expects(self, name: str) -> str:
        """The element types that an input may have, in words."""
        return self.types[name] if name in self.types else " or ".join(self.dtypes)


def contract_of(target: Target, name: str, variant: CAbiVariant) -> Contract:
    """The operator of a variant. Raises LoopError for a signature that an operator cannot have."""
    signature = target.signature
    if not target.is_plain:
        raise UsageError(
            f"no operator of {name}: an operator takes tensors one by one and gives one",
            hint="`loop kernels verify` and `measure` call it as it is",
        )
    contract = Contract(
        space=f"loop_{target.name.replace('-', '_')}",
        name=name,
        device=variant.device,
        inputs={key: tuple(text.split()) for key, text in signature.inputs.items()},
        output=tuple(signature.output.split()),
        types=dict(signature.types),
        dtypes=variant.dtypes,
        attributes=dict(signature.attributes),
    )
    unknown = [dimension for dimension in contract.output if dimension not in contract.homes]
    if unknown:
        raise UsageError(
            f"no operator of {name}: {unknown[0]} is a dimension of the output and of no input",
            hint="an operator makes its output, so that each of its sizes has to be that of an input",
        )
    if contract.only and OUTPUT not in contract.types and len(contract.dtypes) > 1:
        raise UsageError(
            f"no operator of {name}: all inputs have types of their own, and the output has none",
            hint="say it in the signature's `types`, or leave the variant one of `dtypes`",
        )
    for tensor, dimensions in {**contract.inputs, OUTPUT: contract.output}.items():
        if len(dimensions) > MAX_RANK:
            raise UsageError(f"no operator of {name}: {tensor} has more than {MAX_RANK} dimensions")
    return contract


def choices_in_words(attribute: Attribute) -> str:
    """The indices of a choice and what they mean: `0 (left) or 1 (right)`."""
    return " or ".join(f"{index} ({word})" for index, word in enumerate(attribute.choices))


def meanings_of_words(attribute: Attribute) -> dict[object, bool | int | float]:
    """Words of a caller to values of the raw operator. None is the default: NaN for a number without one."""
    words: dict[object, bool | int | float] = {False: False, True: True} if attribute.kind == "flag" else {}
    words |= {word: index for index, word in enumerate(attribute.choices)}
    initial = attribute.initial
    assert not isinstance(initial, str) or initial in words
    words[None] = words[initial] if initial in words else float(initial) if initial is not None else math.nan
    return words


def wrong_value(name: str, attribute: Attribute, value: object) -> ValueError:
    """The error for something that an attribute cannot be."""
    wanted = {"flag": "True or False", "number": "a number or None"}
    words = wanted.get(attribute.kind) or "one of " + ", ".join(map(repr, attribute.choices))
    return ValueError(f"{name}: expected {words}, got {value!r}")
