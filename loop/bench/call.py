"""One call of a target's function as parent and child speak of it: files, shapes and attributes. Plain data."""

from dataclasses import asdict, dataclass
from typing import Any

from loop.model.target import Signature, Workload
from loop.model.workloads import shape

Value = bool | int | float | str | None


@dataclass(frozen=True)
class TensorFile:
    """A contiguous tensor in a file, C order, in the call's element type."""

    name: str
    path: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """Everything a variant needs to compute one output."""

    key: str
    """Name of the workload."""
    dtype: str
    inputs: tuple[TensorFile, ...]
    output: TensorFile
    attributes: dict[str, Value]
    """By name, for Python variants."""
    numbers: tuple[float | None, ...]
    """In signature order, for C: None stands for NaN."""

    def to_json(self) -> dict[str, Any]:
        """Plain data that `call_from_json` reads."""
        return asdict(self)


def make_call(signature: Signature, workload: Workload, folder: str, reader: str) -> Call:
    """The call of `workload`, its inputs in `folder`, its output in a file of `reader`'s own there."""
    stem = f"{folder}/{_file_name(workload)}"
    inputs = tuple(
        TensorFile(name, f"{stem}-{name}.bin", shape(dimensions, workload))
        for name, dimensions in signature.inputs.items()
    )
    output = TensorFile("output", f"{stem}-{reader}-output.bin", shape(signature.output, workload))
    return Call(
        workload.name,
        workload.dtype,
        inputs,
        output,
        dict(workload.attributes),
        _numbers(signature, workload),
    )


def _file_name(workload: Workload) -> str:
    return "".join(c if c.isalnum() else "_" for c in workload.name) + f"-{workload.seed}"


def _numbers(signature: Signature, workload: Workload) -> tuple[float | None, ...]:
    return tuple(
        attribute_number(attribute.choices, workload.attributes[name])
        for name, attribute in signature.attributes.items()
    )


def attribute_number(choices: tuple[str, ...], value: Value) -> float | None:
    """An attribute as the double a C kernel is given; None for "not given"."""
    if isinstance(value, str):
        return float(choices.index(value))
    return None if value is None else float(value)
