"""Expands a target's workload sets to single workloads: lists, shorthands and defaults."""

import contextlib
import itertools
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from loop.base.expressions import Expression
from loop.model.dtypes import ITEM_SIZES, Dtype, Layout
from loop.model.target import ANY, Scalar, Signature, Target, Workload

VALUE_KINDS = ("normal", "wide", "constant")  # Kinds of values that every target has.
RESERVED_KEYS = ("dtype", "values", "weight")
Attributes = Mapping[str, Scalar | None]


class WorkloadError(ValueError):
    """A workload entry does not fit the signature. It has the key, what was expected, and found."""

    def __init__(self, key: str, expected: str, got: str, *, known: Sequence[str] = ()) -> None:
        super().__init__(f"{key}: expected {expected}, got {got}")
        self.key, self.expected, self.got, self.known = key, expected, got, known
        """All valid keys if `key` is unknown; else empty."""


class CallConditions(Protocol):
    """A variant's statement of the calls that it supports."""

    @property
    def dtypes(self) -> tuple[Dtype, ...]:
        """Supported element types."""

    @property
    def takes(self) -> str | None:
        """Condition on sizes, attributes and type for supported calls; None: all calls."""


def expand_sets(
    target: Target, sets: Iterable[str], dtype: Dtype, seed: int = 0
) -> tuple[Workload, ...]:
    """All workloads of the named sets, each once. `dtype`: if they name none. WorkloadError."""
    workload_by_name: dict[str, Workload] = {}
    for entry in (entry for name in sets for entry in target.workloads[name]):
        lists = [value if isinstance(value, tuple) else (value,) for value in entry.values()]
        for values in itertools.product(*lists):
            workload = make_workload(target, dict(zip(entry, values, strict=True)), dtype, seed)
            workload_by_name.setdefault(workload.name, workload)
    return tuple(workload_by_name.values())


def make_workload(
    target: Target, entry: Mapping[str, Scalar], default_dtype: Dtype, seed: int = 0
) -> Workload:
    """One workload from an entry without lists. WorkloadError if it does not fit the signature."""
    signature = target.signature
    sizes = _expand_sizes(signature, entry)
    attributes: dict[str, Scalar | None] = {}
    for key, attribute in signature.attributes_and_parameters.items():
        attributes[key] = value = entry.get(key, attribute.default_value)
        if key in entry and not attribute.admits(value):
            expected = f"a {attribute.kind}"
            if attribute.choices:
                expected = f"one of {', '.join(attribute.choices)}"
            raise WorkloadError(key, expected, repr(value))
    dtype = entry.get("dtype", default_dtype)
    if dtype not in ITEM_SIZES:
        raise WorkloadError("dtype", f"one of {', '.join(ITEM_SIZES)}", repr(dtype))
    value_kind, known_kinds = entry.get("values", "normal"), (*VALUE_KINDS, *target.values)
    if value_kind not in known_kinds:
        raise WorkloadError("values", f"one of {', '.join(known_kinds)}", repr(value_kind))
    # A signature may use the name for a size or an attribute: then the workload has no weight.
    is_taken = "weight" in (*signature.attributes_and_parameters, *signature.dimensions)
    weight = 1.0 if is_taken else entry.get("weight", 1.0)
    if isinstance(weight, bool | str) or not 0 < weight < math.inf:
        raise WorkloadError("weight", "a number above 0", repr(weight))
    name = _workload_name(signature, sizes, attributes, str(dtype), str(value_kind))
    fields: dict[str, object] = {"sizes": sizes, "attributes": attributes, "weight": weight}
    fields |= {"name": name, "seed": seed + zlib.crc32(name.encode())}
    return Workload.model_validate({**fields, "dtype": dtype, "values": value_kind})


def _expand_sizes(signature: Signature, entry: Mapping[str, Scalar]) -> dict[str, int]:
    """Dimension to size, shorthands expanded. Raises WorkloadError for unknown or missing names."""
    sizes: dict[str, int] = {}
    for key, value in entry.items():
        names = signature.shorthand.get(key, (key,) if key in signature.dimensions else ())
        if names and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise WorkloadError(key, "a size of 0 or more", repr(value))
        sizes |= {name: int(value) for name in names}
        others = (*signature.attributes_and_parameters, *RESERVED_KEYS)
        if not names and key not in others:
            known = [*signature.shorthand, *signature.dimensions, *others]
            raise WorkloadError(key, f"one of {', '.join(known)}", "an unknown name", known=known)
    for name in signature.dimensions:
        if name not in sizes:
            raise WorkloadError(name, "a size", "nothing")
    return {name: sizes[name] for name in signature.dimensions}


def _workload_name(
    signature: Signature, sizes: dict[str, int], attributes: Attributes, dtype: str, values: str
) -> str:
    """Unique name of a workload, without default values: `B1 H1 S64 D64 causal float16`."""
    attribute_by_name = signature.attributes_and_parameters
    words = [f"{name}{size}" for name, size in _shorten_sizes(signature, sizes).items()]
    for name, value in attributes.items():
        if value is None or value == attribute_by_name[name].default_value:
            continue
        if isinstance(value, bool):
            words.append(name if value else f"{name}=no")
        elif isinstance(value, str):
            # A choice stands alone if nothing else in the name can be the same word.
            other_words: set[str] = {*VALUE_KINDS, *ITEM_SIZES}
            for other_name, attribute in attribute_by_name.items():
                if other_name != name:
                    other_words |= {other_name, *attribute.choices}
            words.append(f"{name}={value}" if value in other_words else value)
        else:
            short_text = f"{value:g}"
            words.append(f"{name}={short_text if float(short_text) == value else repr(value)}")
    words.append(dtype)
    return " ".join(words if values == "normal" else [*words, values])


def _shorten_sizes(signature: Signature, sizes: dict[str, int]) -> dict[str, int]:
    """Sizes, with a shorthand in place of its first dimension, without the others, if all agree."""
    short_sizes = dict(sizes)
    for shorthand, names in signature.shorthand.items():
        distinct_sizes = {short_sizes.get(name) for name in names}
        if len(distinct_sizes) == 1 and None not in distinct_sizes:
            first, *other_names = names
            kept = {name: size for name, size in short_sizes.items() if name not in other_names}
            short_sizes = {shorthand if name == first else name: s for name, s in kept.items()}
    return short_sizes


def evaluate_work(formula: str | None, workload: Workload) -> float | None:
    """Value of a target's `flops` or `bytes` formula for one call; None without a formula."""
    if formula is None:
        return None
    return Expression.parse(formula).evaluate_number(workload.formula_values)


def count_operations(target: Target, workload: Workload) -> float:
    """Operations of a call by the manifest's `flops`; if none or 0, the product of all sizes."""
    return evaluate_work(target.flops, workload) or float(math.prod(workload.sizes.values()))


def is_supported(variant: CallConditions, workload: Workload) -> bool:
    """Whether a variant supports a workload, by its element types and its `takes` condition."""
    return workload.dtype in variant.dtypes and not explain_unsupported(variant, workload)


def explain_unsupported(
    variant: CallConditions, workload: Workload, layout: Layout = "contiguous"
) -> str:
    """The values in the part of `takes` that excludes a workload, as `D=250`; else empty."""
    if variant.takes is None:
        return ""
    values = {"layout": layout, **workload.formula_values, "dtype": workload.dtype}
    for part in Expression.parse(variant.takes).parts:
        if not part.evaluate_bool(values):
            values_read = {name: value for name, value in values.items() if name in part.names}
            return format_entry(values_read, separator=", ") or variant.takes
    return ""


def make_entry(signature: Signature, workload: Workload) -> dict[str, Scalar]:
    """A workload as a manifest entry: with shorthands, and without values that are the default."""
    known = signature.attributes_and_parameters
    stated = {name: value for name, value in workload.attributes.items() if value is not None}
    attributes = {name: v for name, v in stated.items() if v != known[name].default_value}
    kind = {} if workload.values == "normal" else {"values": workload.values}
    sizes = _shorten_sizes(signature, workload.sizes)
    return {**sizes, **attributes, **kind, "dtype": workload.dtype}


def format_entry(entry: Mapping[str, object], separator: str = " ") -> str:
    """An entry as command-line words: `B=1 causal=true dtype=float16`. Values but text are JSON."""
    texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in entry.items()}
    return separator.join(f"{key}={text}" for key, text in texts.items())


def parse_entry(text: str) -> dict[str, Scalar]:
    """Read the text of `format_entry`, also with commas. WorkloadError for a word without value."""
    entry: dict[str, Scalar] = {}
    for word in text.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise WorkloadError(key, f"{key}=VALUE", repr(word))
        entry[key] = value
        with contextlib.suppress(ValueError):
            number = json.loads(value)
            entry[key] = number if isinstance(number, bool | int | float) else value
    return entry


def tensor_bytes(target: Target, workload: Workload) -> dict[str, int]:
    """Input or output name to its bytes, for tensors with dimensions in the signature."""
    signature = target.signature
    bytes_by_tensor: dict[str, int] = {}
    for name, dimensions in {**signature.inputs, **signature.outputs}.items():
        if dimensions != ANY:
            item_bytes = ITEM_SIZES[signature.types.get(name, workload.dtype)]
            elements = math.prod(workload.sizes[size] for size in dimensions.split())
            bytes_by_tensor[name] = elements * item_bytes
    return bytes_by_tensor
