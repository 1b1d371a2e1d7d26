"""Choose sizes for a first target, and write the text of its `target.yaml`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.places import MANIFEST

SMALL = re.compile(r"k|kh|kw|kd|ks|r|s|fh|fw|kx|ky|kernel\w*|taps|window", re.IGNORECASE)
LITTLE = 8
"""A size given by number up to this one is not varied: a filter's 3, 4 heads."""
WHOLE = {1: (8192,), 2: (1024, 256), 3: (256, 64, 8), 4: (64, 64, 8, 4)}
"""Rank of a tensor to its timed sizes, from the last dimension to the first."""
TRIED = (
    (7, 11, 13, 17, 5, 19, 23, 29),
    (8, 16, 24, 32, 40, 48, 56, 64),
    (64, 32, 16, 8, 4, 2, 2, 2),
    (16, 64, 32, 8, 128, 4, 2, 2),
    (8,) * 8,
    (16,) * 8,
)
"""Sizes to try until a function runs. Different sizes first, because equal ones hide mistakes."""
DIFFERENT = 4
"""Leading entries of TRIED with different sizes; with equal sizes wrong calls run, too."""
EDGES = ((3, 17, 5, 9), (1,), (33, 3), (65, 31, 7, 2), (5, 1), (1, 67), (2, 129, 3))
"""Sizes of checked workloads, repeated over all dimensions. Rows of 1 and 3 show wrong padding."""
SINGLE = (1, 3, 7, 17, 33, 67, 2, 4, 12, 20, 36)
"""Values for a single changed size, used for dimensions that EDGES cannot vary."""


class Sizes:
    """The dimensions of all inputs, and the sizes to try, time and check."""

    def __init__(self, shapes: Sequence[Sequence[str]], fixed: Mapping[str, int]) -> None:
        self.shapes, self.fixed = shapes, fixed
        self.names = list(dict.fromkeys(name for shape in shapes for name in shape))
        self.free = [name for name in self.names if name not in fixed]
        self.filter = set[str]()
        """Dimensions of a filter, such as kh and kw, found only in one later tensor's last axes."""
        for name in self.free:
            first, *others = (shape for shape in shapes if name in shape)
            if len(shapes) > 1 and not others and first is not shapes[0]:
                elsewhere = {dim for shape in shapes if shape is not first for dim in shape}
                own = [dim for dim in first[1:] if dim not in elsewhere]
                if name in own and (SMALL.fullmatch(name) or (len(first) > 2 and len(own) > 1)):
                    self.filter.add(name)

    def tried(self) -> Iterator[dict[str, int]]:
        """Sizes to try, in order; sizes that the user gave by number stay."""
        for values in TRIED if self.free else ((),):
            rest = iter([*values, *values, *values])
            yield {
                name: self.fixed[name] if name in self.fixed else 3 if name in self.filter else next(rest)
                for name in self.names
            }

    def timed(self, divisor: int) -> dict[str, int]:
        """The timed sizes; `divisor` reduces those that the user did not fix."""
        largest = dict(self.fixed)
        for name in self.free:
            rank, place = max((len(shape), -shape.index(name)) for shape in self.shapes if name in shape)
            sizes = WHOLE.get(rank, (32, 32, 8, 4, 2))
            size = 3 if name in self.filter else sizes[min(rank - 1 + place, len(sizes) - 1)]
            largest[name] = max(size // divisor, min(size, 8))
        return {name: largest[name] for name in self.names}

    def varied(self, *, vary: bool) -> list[str]:
        """Dimensions that checks may vary: not a filter's; fixed ones only with `vary` if large."""
        large = [name for name, size in self.fixed.items() if size > LITTLE] if vary else []
        return [name for name in self.names if name in large or (name in self.free and name not in self.filter)]


def uneven_sizes(sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """The sizes with `names` set to odd values of about a quarter, which no tile divides."""
    return {**sizes, **{name: sizes[name] // 4 + (1 if sizes[name] // 4 % 2 == 0 else 2) for name in names}}


def edge_sizes(base: Mapping[str, int], names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes at which kernels often fail; each changes all of `names` at once."""
    for values in EDGES if names else ():
        yield {**base, **{name: values[n % len(values)] for n, name in enumerate(names)}}


FLOATS = {"float16": 1e-2, "bfloat16": 1e-2}
SHIFT = {"negative": "{kind: normal, offset: -8}", "positive": "{kind: normal, offset: 8}"}
SHIFT["far"] = "{kind: normal, scale: 30, offset: -240}"
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


def manifest(
    folder: Path, facts: Mapping[str, Any], variant: str, notes: Sequence[str], names: Mapping[str, str]
) -> str:
    """The text of target.yaml.

    `facts`: see `facts_of`; `variant`: the YAML line of the first variant; `names`: role of each Python file to
    its module name.
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.absolute().name.lower()).strip("-_")[:48]
    own, function = f"{names['inputs']}:make", facts["function"]
    edges = facts["workloads"]["edges"]
    checked = "  edges:                          # only checked: add sizes at which your kernel may go wrong\n"
    none = "  # edges: [...]                  # name the sizes at which a kernel may go wrong: 1, 63 and 65"
    positive, values = set(facts["positive"]), []  # Inputs that must be positive; lines of `values:`.
    inputs = [] if facts["generated"] else [name for name, _, _ in facts["inputs"]]
    if positive and inputs:
        values.append(f"  positive: {_flow({name: SHIFT['positive'] for name in inputs if name in positive})}\n")
    for drawn in ("negative", "far") if inputs else ():
        if any(entry.get("drawn") == drawn for entry in edges):
            shifted = {name: SHIFT["positive" if name in positive else drawn] for name in inputs}
            values.append(f"  {drawn}: {_flow(shifted)}\n")
    allowed, types = facts["tolerance"], {dtype for _, _, dtype in (*facts["inputs"], *facts["outputs"])}
    least = {"float32": allowed, **FLOATS, **({"float64": allowed} if "float64" in types else {})}
    errors = {dtype: _scalar(max(allowed, error)) for dtype, error in least.items()}
    return TEXT.format(
        path=MANIFEST,
        notes="".join(f"# guessed: {note}\n" for note in notes),
        name=name if name[:1].isalpha() else f"target-{name}".rstrip("-"),
        function=function,
        signature="\n".join(_signature(facts)),
        generator=f'generator: {{python: "{own}"}}   # makes the inputs\n' if facts["generated"] else "",
        reference=f"{names['reference']}:{function}",
        tolerance="\n".join(f"  {dtype}: {{atol: {error}, rtol: {error}}}" for dtype, error in errors.items()),
        values="".join(["values:\n", *values]) if values else "",
        quick="\n".join(_entries(facts, facts["workloads"]["quick"])),
        edges=checked + "\n".join(_entries(facts, edges)) if edges else none,
        variant=variant,
    )


def _signature(facts: Mapping[str, Any]) -> Iterator[str]:
    """The lines of `signature` in target.yaml."""
    inputs, outputs, is_function = facts["inputs"], facts["outputs"], facts["kind"] == "function"
    if is_function:
        yield f"  inputs: {_flow({name: dims for name, dims, _ in inputs})}   # dimensions by name"
    else:
        others = ", ".join(f"{name} ({dims})" for name, dims, _ in inputs)
        yield f"  # inputs: `weights`, a dict of parameters and buffers by name; then {others}"
        yield f"  sizes: [{', '.join(facts['sizes'])}]"
    is_declared = bool(outputs) and (all(dims for _, dims, _ in outputs) or bool(facts["updates"]))
    none = "  # outputs: {output: N M}       # those of the reference; name their dimensions where these are sizes"
    yield f"  outputs: {_flow({name: dims or '...' for name, dims, _ in outputs})}" if is_declared else none
    if facts["updates"]:
        yield f"  updates: {_flow(facts['updates'])}   # changed in place"
    tensors = (inputs if is_function else []) + (outputs if is_declared else [])
    if types := {name: dtype for name, _, dtype in tensors if dtype}:
        yield f"  types: {_flow(types)}"
    kinds = {name: "flag" if isinstance(value, bool) else "number" for name, value in facts["attributes"].items()}
    attributes = {
        name: f"{{kind: {kinds[name]}, default: {_scalar(facts['attributes'][name])}}}" for name in kinds
    }
    if attributes:
        yield f"  attributes: {_flow(attributes)}"
    if facts["generated"]:
        yield "  parameters: {drawn: {kind: choice, choices: [normal, negative, far, ends]}}"


def _entries(facts: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each workload. Without a generator, `drawn` becomes a kind of `values`."""
    for workload in entries:
        entry, drawn = {name: value for name, value in workload.items() if name != "drawn"}, workload.get("drawn")
        if facts["generated"]:
            entry |= {"drawn": drawn} if drawn else {}
        elif drawn == "ends":  # Every second seed of `values` does that by default.
            continue
        elif drawn or facts["positive"]:
            entry["values"] = drawn or "positive"
        yield f"    - {_flow({name: _scalar(value) for name, value in entry.items()})}"


def _scalar(value: Any) -> str:
    """A value as YAML text that reads back: 1.0e-05, because YAML takes 1e-05 for a string."""
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value)


def _flow(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
