"""Choose sizes for a first target, and write the text of its `target.yaml`."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.places import MANIFEST
from loop.starting.model import Scalar, TargetFacts

FILTER_NAME = re.compile(r"k|kh|kw|kd|ks|r|s|fh|fw|kx|ky|kernel\w*|taps|window", re.IGNORECASE)
LARGEST_UNVARIED = 8  # A size given by number up to this one is not varied: a filter's 3, 4 heads.
TIMED_SIZES = {1: (8192,), 2: (1024, 256), 3: (256, 64, 8), 4: (64, 64, 8, 4)}
"""Rank of a tensor to its timed sizes, from the last dimension to the first."""
MORE_DIMS = (32, 32, 8, 4, 2)  # The same for tensors of higher rank.
FILTER_SIZE = 3
DIFFERENT_SIZES = (
    (7, 11, 13, 17, 5, 19, 23, 29),
    (8, 16, 24, 32, 40, 48, 56, 64),
    (64, 32, 16, 8, 4, 2, 2, 2),
    (16, 64, 32, 8, 128, 4, 2, 2),
)
"""Sizes of the dimensions, to try one row after the other until a function runs."""
EQUAL_SIZES = ((8,) * 8, (16,) * 8)  # To try last, because with equal sizes wrong calls run, too.
EDGES = ((3, 17, 5, 9), (1,), (33, 3), (65, 31, 7, 2), (5, 1), (1, 67), (2, 129, 3))
"""Sizes at which kernels often fail, repeated over all dimensions. Rows of 1 and 3 show wrong padding."""
SINGLE_SIZES = (1, 3, 7, 17, 33, 67, 2, 4, 12, 20, 36)
"""Values for a single changed size, used for dimensions that EDGES cannot vary."""
SMALL_FLOAT_TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2}
OUTPUTS_COMMENT = "those of the reference; name their dimensions where these are sizes"
DISTRIBUTIONS = {"negative": "{kind: normal, offset: -8}", "positive": "{kind: normal, offset: 8}"}
DISTRIBUTIONS["far"] = "{kind: normal, scale: 30, offset: -240}"
TEXT = """\
# A target of your own. `loop patterns check {path}` lists every mistake in this file with its line.
{notes}format: 2
name: {name}
function: {function}
signature:
{signature}
{generator}reference: {{python: "{reference}"}}   # what is right, in float64 and under torch.no_grad()
baseline: {{python: "{reference}"}}    # what you would otherwise run
tolerance:                        # of one element: atol + rtol * |reference|
{tolerance}
dtypes: {{cpu: float32, cuda: float32}}
# flops: "2*N*M"                  # of one call, for the roofline; bytes, too
{values}workloads:
  quick:                          # timed and checked
{quick}
{edges}
variants:
  {variant}
"""


class Sizes:
    """The dimensions of all inputs, and the sizes to try, time and check."""

    def __init__(self, shapes: Sequence[Sequence[str]], fixed_sizes: Mapping[str, int]) -> None:
        """`shapes`: the dimensions of each input, by name; `fixed_sizes`: those that the user gave by number."""
        self.shapes, self.fixed_sizes = shapes, fixed_sizes
        self.names = list(dict.fromkeys(name for shape in shapes for name in shape))
        self.free_dims = [name for name in self.names if name not in fixed_sizes]
        self.filter_dims = {name for name in self.free_dims if self._is_filter_dim(name)}

    def _is_filter_dim(self, name: str) -> bool:
        """Whether a dimension looks like a filter's, as kh and kw of a convolution, and has to be small.
        A filter is not the first tensor, and shares neither kh nor kw with another tensor. Such a
        dimension needs a usual name, or a second one beside it."""
        filter_shape, *other_shapes = [shape for shape in self.shapes if name in shape]
        if other_shapes or filter_shape is self.shapes[0]:
            return False
        shared_dims = {dim for shape in self.shapes if shape is not filter_shape for dim in shape}
        unshared_dims = [dim for dim in filter_shape[1:] if dim not in shared_dims]
        has_second = len(filter_shape) > 2 and len(unshared_dims) > 1
        return name in unshared_dims and (has_second or bool(FILTER_NAME.fullmatch(name)))

    def candidates(self, table: Sequence[Sequence[int]]) -> list[dict[str, int]]:
        """Sizes of all dimensions from each row of a table, without duplicates. Those given by number stay."""
        set_sizes = {**self.fixed_sizes, **dict.fromkeys(self.filter_dims, FILTER_SIZE)}
        candidates: list[dict[str, int]] = []
        for row in table:
            sizes = itertools.cycle(row)
            candidate = {name: set_sizes[name] if name in set_sizes else next(sizes) for name in self.names}
            candidates += [] if candidate in candidates else [candidate]
        return candidates

    def timed(self, divisor: int) -> dict[str, int]:
        """The timed sizes. Those that the user did not fix are divided by `divisor`, to 8 at least."""
        timed_sizes = {name: self.fixed_sizes.get(name, 0) for name in self.names}
        for name in self.free_dims:
            owners = [(len(shape), len(shape) - 1 - shape.index(name)) for shape in self.shapes if name in shape]
            rank, axis_from_last = max(owners)  # The tensor of highest rank decides.
            sizes = TIMED_SIZES.get(rank, MORE_DIMS)
            size = FILTER_SIZE if name in self.filter_dims else sizes[min(axis_from_last, len(sizes) - 1)]
            timed_sizes[name] = max(size // divisor, min(size, 8))
        return timed_sizes

    def varied(self, *, vary_fixed: bool) -> list[str]:
        """Dimensions that checks may vary: free ones except a filter's; `vary_fixed`: also large fixed ones."""
        varied = {*self.free_dims} - self.filter_dims
        if vary_fixed:
            varied |= {name for name, size in self.fixed_sizes.items() if size > LARGEST_UNVARIED}
        return [name for name in self.names if name in varied]


def manifest(
    folder: Path, facts: TargetFacts, variant: str, notes: Sequence[str], module_names: Mapping[str, str]
) -> str:
    """The text of target.yaml. `variant`: the YAML line of the first variant; `notes`: what was guessed.
    `module_names`: `reference`, `mine` and `inputs` to the name of that module."""
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.absolute().name.lower()).strip("-_")[:48]
    generator = f'generator: {{python: "{module_names["inputs"]}:make"}}   # makes the inputs\n'
    edges = "  # edges: [...]                  # name the sizes at which a kernel may go wrong: 1, 63 and 65"
    if facts.edges:
        edges = "  edges:                          # only checked: add sizes at which your kernel may go wrong\n"
        edges += "\n".join(_workload_lines(facts, facts.edges))
    tolerances = {"float32": facts.tolerance, **SMALL_FLOAT_TOLERANCE}
    if any(tensor.dtype == "float64" for tensor in (*facts.inputs, *facts.outputs)):
        tolerances["float64"] = facts.tolerance
    tolerance_texts = {dtype: _yaml_scalar(max(facts.tolerance, least)) for dtype, least in tolerances.items()}
    values = _value_lines(facts)
    return TEXT.format(
        path=MANIFEST,
        notes="".join(f"# guessed: {note}\n" for note in notes),
        name=name if name[:1].isalpha() else f"target-{name}".rstrip("-"),
        function=facts.function,
        signature="\n".join(_signature_lines(facts)),
        generator=generator if facts.needs_generator else "",
        reference=f"{module_names['reference']}:{facts.function}",
        tolerance="\n".join(
            f"  {dtype}: {{atol: {error}, rtol: {error}}}" for dtype, error in tolerance_texts.items()
        ),
        values="".join(["values:\n", *values]) if values else "",
        quick="\n".join(_workload_lines(facts, facts.quick)),
        edges=edges,
        variant=variant,
    )


def _value_lines(facts: TargetFacts) -> list[str]:
    """Lines of `values` in target.yaml: by name, distributions from which loop draws; none with a generator."""
    if facts.needs_generator:
        return []
    positive = [tensor.name for tensor in facts.inputs if tensor.values == "positive"]
    lines = []
    if positive:
        lines.append(f"  positive: {_yaml_mapping(dict.fromkeys(positive, DISTRIBUTIONS['positive']))}\n")
    for drawn in ("negative", "far"):
        if any(workload.get("drawn") == drawn for workload in facts.edges):
            distributions = {tensor.name: DISTRIBUTIONS[drawn] for tensor in facts.inputs}
            distributions |= dict.fromkeys(positive, DISTRIBUTIONS["positive"])
            lines.append(f"  {drawn}: {_yaml_mapping(distributions)}\n")
    return lines


def _signature_lines(facts: TargetFacts) -> Iterator[str]:
    """The lines of `signature` in target.yaml."""
    dims = {tensor.name: " ".join(tensor.dims) for tensor in (*facts.inputs, *facts.outputs)}
    is_function = facts.kind == "function"
    if is_function:
        inputs = _yaml_mapping({tensor.name: dims[tensor.name] for tensor in facts.inputs})
        yield f"  inputs: {inputs}   # dimensions by name"
    else:
        input_texts = ", ".join(f"{tensor.name} ({dims[tensor.name]})" for tensor in facts.inputs)
        yield f"  # inputs: `weights`, a dict of parameters and buffers by name; then {input_texts}"
        yield f"  sizes: [{', '.join(facts.sizes)}]"
    # Without `outputs`, loop takes those of the reference. With `updates` they have to be there.
    is_declared = bool(facts.outputs) and (all(tensor.dims for tensor in facts.outputs) or bool(facts.updates))
    if is_declared:
        yield f"  outputs: {_yaml_mapping({tensor.name: dims[tensor.name] or '...' for tensor in facts.outputs})}"
    else:
        yield f"  # outputs: {{output: N M}}       # {OUTPUTS_COMMENT}"
    if facts.updates:
        yield f"  updates: {_yaml_mapping(facts.updates)}   # changed in place"
    tensors = (facts.inputs if is_function else ()) + (facts.outputs if is_declared else ())
    if types := {tensor.name: tensor.dtype for tensor in tensors if tensor.dtype}:
        yield f"  types: {_yaml_mapping(types)}"
    attributes: dict[str, str] = {}
    for name, value in facts.attributes.items():
        kind = "flag" if isinstance(value, bool) else "number"
        attributes[name] = f"{{kind: {kind}, default: {_yaml_scalar(value)}}}"
    if attributes:
        yield f"  attributes: {_yaml_mapping(attributes)}"
    if facts.needs_generator:
        yield "  parameters: {drawn: {kind: choice, choices: [normal, negative, far, ends]}}"


def _workload_lines(facts: TargetFacts, workloads: Iterable[Mapping[str, Scalar | str]]) -> Iterator[str]:
    """A line for each workload. `drawn` is a generator's parameter; without one it becomes one of `values`."""
    has_positive = any(tensor.values == "positive" for tensor in facts.inputs)
    for workload in workloads:
        entry = {name: _yaml_scalar(value) for name, value in workload.items()}
        if not facts.needs_generator:
            drawn = entry.pop("drawn", '"positive"' if has_positive else "")
            if drawn == '"ends"':  # Every second seed of `values` draws these by default.
                continue
            entry |= {"values": drawn} if drawn else {}
        yield f"    - {_yaml_mapping(entry)}"


def _yaml_scalar(value: Any) -> str:
    """A value as YAML text that reads back: 1.0e-05, because YAML takes 1e-05 for a string."""
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value)


def _yaml_mapping(values: Mapping[str, object]) -> str:
    """A YAML mapping on one line; the values are YAML text."""
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
