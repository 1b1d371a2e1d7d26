"""Derives an operator's inputs and output from the manifest's signature. Imports no torch."""

import math
from dataclasses import dataclass

from loop.base.errors import UsageError
from loop.calls.call import MAX_RANK
from loop.model.dtypes import Device, Dtype
from loop.model.signature import OUTPUT, Attribute
from loop.model.target import CAbiVariant, Target

SCHEMA_TYPES = {"flag": "bool", "choice": "int", "number": "float"}
"""Kind of attribute to its type in the operator's schema."""


@dataclass(frozen=True)
class Contract:
    """Name, inputs and output of an operator."""

    namespace: str
    name: str
    """Name in the namespace: the variant's name."""
    device: Device
    inputs: dict[str, tuple[str, ...]]
    """Input tensors: name to dimensions."""
    output: tuple[str, ...]
    fixed_types: dict[str, Dtype]
    """Fixed element types, by input name or `output`. Others have the call's type."""
    call_types: tuple[Dtype, ...]
    """Element types that a call may have."""
    attributes: dict[str, Attribute]
    """Arguments that are not tensors, in the order of the C interface."""

    @property
    def title(self) -> str:
        """`namespace::name`, as PyTorch writes it."""
        return f"{self.namespace}::{self.name}"

    @property
    def schema(self) -> str:
        """PyTorch schema of the raw operator: a choice is an int index, a missing number is NaN."""
        tensors = [f"Tensor {name}" for name in self.inputs]
        values = [f"{SCHEMA_TYPES[attribute.kind]} {name}" for name, attribute in self.attributes.items()]
        return f"{self.name}({', '.join(tensors + values)}) -> Tensor"

    @property
    def dimension_sources(self) -> dict[str, tuple[str, int]]:
        """Dimension to (input, axis): the first that has it, from which its size is read."""
        sources: dict[str, tuple[str, int]] = {}
        for name, dimensions in self.inputs.items():
            for axis, dimension in enumerate(dimensions):
                sources.setdefault(dimension, (name, axis))
        return sources

    @property
    def type_shown_by_no_input(self) -> Dtype | None:
        """The first type of `call_types` if all inputs have fixed types, so that none shows it; else None."""
        return self.call_types[0] if set(self.inputs) <= set(self.fixed_types) else None


def contract_of(target: Target, name: str, variant: CAbiVariant) -> Contract:
    """Derive a variant's contract. Raises LoopError if an operator cannot have its signature."""
    signature = target.signature
    if not target.is_plain:
        raise UsageError(
            f"no operator of {name}: an operator takes tensors one by one and gives one",
            hint="`loop kernels verify` and `measure` call it as it is",
        )
    contract = Contract(
        namespace=f"loop_{target.name.replace('-', '_')}",
        name=name,
        device=variant.device,
        inputs={key: tuple(text.split()) for key, text in signature.inputs.items()},
        output=tuple(signature.output_dimensions.split()),
        fixed_types=dict(signature.types),
        call_types=variant.dtypes,
        attributes=dict(signature.attributes),
    )
    unknown = [dimension for dimension in contract.output if dimension not in contract.dimension_sources]
    if unknown:
        raise UsageError(
            f"no operator of {name}: {unknown[0]} is a dimension of the output and of no input",
            hint="an operator makes its output, so that each of its sizes has to be that of an input",
        )
    if contract.type_shown_by_no_input and OUTPUT not in contract.fixed_types and len(contract.call_types) > 1:
        raise UsageError(
            f"no operator of {name}: all inputs have types of their own, and the output has none",
            hint="say it in the signature's `types`, or leave the variant one of `dtypes`",
        )
    for tensor, dimensions in {**contract.inputs, OUTPUT: contract.output}.items():
        if len(dimensions) > MAX_RANK:
            raise UsageError(f"no operator of {name}: {tensor} has more than {MAX_RANK} dimensions")
    return contract


def numbers_by_value(attribute: Attribute) -> dict[object, bool | int | float]:
    """Map an attribute's values, as a caller writes them, to numbers of the raw operator. None maps
    to the number of the default, or to NaN if a `number` has none. Other numbers are not in the map."""
    meanings: dict[object, bool | int | float] = {}
    if attribute.kind == "flag":
        meanings = {False: False, True: True}
    meanings |= {word: index for index, word in enumerate(attribute.choices)}
    default = attribute.default_value
    if default in meanings:
        meanings[None] = meanings[default]
    else:
        assert not isinstance(default, str)  # The manifest was checked: a default is one of the choices.
        meanings[None] = math.nan if default is None else float(default)
    return meanings


def wrong_value(name: str, attribute: Attribute, value: object) -> ValueError:
    """The error for a value that the attribute `name` does not allow."""
    expected_by_kind = {"flag": "True or False", "number": "a number or None"}
    expected = expected_by_kind.get(attribute.kind) or "one of " + ", ".join(map(repr, attribute.choices))
    return ValueError(f"{name}: expected {expected}, got {value!r}")
