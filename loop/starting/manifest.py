"""The text of a first `target.yaml`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.places import MANIFEST

SMALL = re.compile(r"k|kh|kw|kd|ks|r|s|fh|fw|kx|ky|kernel\w*|taps|window", re.IGNORECASE)
LITTLE = 8
"""A number that is given and not above this one stays as it is among edges: a filter's 3, a head's 4."""
WHOLE = {1: (8192,), 2: (1024, 256), 3: (256, 64, 8), 4: (64, 64, 8, 4)}
"""By rank: sizes that are timed, from the last dimension to the first."""
TRIED = (
    (7, 11, 13, 17, 5, 19, 23, 29),
    (8, 16, 24, 32, 40, 48, 56, 64),
    (64, 32, 16, 8, 4, 2, 2, 2),
    (16, 64, 32, 8, 128, 4, 2, 2),
    (8,) * 8,
    (16,) * 8,
)
"""Sizes that a function is tried with, until it runs: different odd ones first, for they tell most."""
DIFFERENT = 4
"""So many of them differ from dimension to dimension; with those that do not, anything fits."""
EDGES = ((3, 17, 5, 9), (1,), (33, 3), (65, 31, 7, 2), (5, 1), (1, 67), (2, 129, 3))
"""What is only checked, repeated over all sizes. Row lengths of 1 and 3 show what a kernel pads a row with."""
SINGLE = (1, 3, 7, 17, 33, 67, 2, 4, 12, 20, 36)
"""One size at a time, where no edge above can be computed."""


class Sizes:
    """The dimensions of all inputs."""

    def __init__(self, shapes: Sequence[Sequence[str]], fixed: Mapping[str, int]) -> None:
        self.shapes, self.fixed = shapes, fixed
        self.names = list(dict.fromkeys(name for shape in shapes for name in shape))
        self.free = [name for name in self.names if name not in fixed]
        self.filter = {name for name in self.free if self._is_of_a_filter(name)}

    def _is_of_a_filter(self, name: str) -> bool:
        """Whether a dimension is one of a filter's own: only the last ones of a later tensor have it."""
        having = [shape for shape in self.shapes if name in shape]
        if len(having) != 1 or len(self.shapes) < 2 or having[0] is self.shapes[0]:
            return False
        others = {dim for shape in self.shapes if shape is not having[0] for dim in shape}
        own = [dim for dim in having[0][1:] if dim not in others]
        return name in own and (bool(SMALL.fullmatch(name)) or (len(having[0]) > 2 and len(own) > 1))

    def tried(self) -> Iterator[dict[str, int]]:
        """Sizes that a function may run with; numbers that are given stay."""
        for values in TRIED if self.free else ((),):
            rest = iter([*values, *values, *values])
            yield {
                name: self.fixed[name] if name in self.fixed else 3 if name in self.filter else next(rest)
                for name in self.names
            }

    def timed(self, divisor: int) -> dict[str, int]:
        """What is timed; `divisor` makes the largest ones smaller."""
        largest = dict(self.fixed)
        for name in self.free:
            rank, place = max((len(shape), -shape.index(name)) for shape in self.shapes if name in shape)
            sizes = WHOLE.get(rank, (32, 32, 8, 4, 2))
            size = 3 if name in self.filter else sizes[min(rank - 1 + place, len(sizes) - 1)]
            largest[name] = max(size // divisor, min(size, 8))
        return {name: largest[name] for name in self.names}

    def varied(self, *, vary: bool) -> list[str]:
        """Dimensions that edges change: a filter's stay, and numbers that are given, unless `vary`."""
        large = [name for name, size in self.fixed.items() if size > LITTLE] if vary else []
        return [name for name in self.names if name in large or (name in self.free and name not in self.filter)]


def uneven(sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """Odd sizes of about a quarter, which no tile divides."""
    return {**sizes, **{name: sizes[name] // 4 + (1 if sizes[name] // 4 % 2 == 0 else 2) for name in names}}


def edges(base: Mapping[str, int], names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes at which a kernel may go wrong, all of these dimensions at once."""
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
Tensors = Sequence[tuple[str, str | None, str]]
"""Name, dimensions and type of each."""


def manifest(
    folder: Path, facts: Mapping[str, Any], variant: str, notes: Sequence[str], names: Mapping[str, str]
) -> str:
    """The whole of it.

    `facts`: what the program that tried the function says; `variant`: its line; `names`: of the files in Python.
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.absolute().name.lower()).strip("-_")[:48]
    own, function = f"{names['inputs']}:make", facts["function"]
    edges = facts["workloads"]["edges"]
    checked = "  edges:                          # only checked: add sizes at which your kernel may go wrong\n"
    none = "  # edges: [...]                  # name the sizes at which a kernel may go wrong: 1, 63 and 65"
    return TEXT.format(
        path=MANIFEST,
        notes="".join(f"# guessed: {note}\n" for note in notes),
        name=name if name[:1].isalpha() else f"target-{name}".rstrip("-"),
        function=function,
        signature="\n".join(_signature(facts)),
        generator=f'generator: {{python: "{own}"}}   # makes the inputs\n' if facts["generated"] else "",
        reference=f"{names['reference']}:{function}",
        tolerance="\n".join(_tolerance(facts)),
        values="" if facts["generated"] else _values(facts),
        quick="\n".join(_entries(facts, facts["workloads"]["quick"])),
        edges=checked + "\n".join(_entries(facts, edges)) if edges else none,
        variant=variant,
    )


def _signature(facts: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the signature."""
    inputs, outputs, is_function = facts["inputs"], facts["outputs"], facts["kind"] == "function"
    if is_function:
        yield f"  inputs: {_dims(inputs)}   # dimensions by name"
    else:
        others = ", ".join(f"{name} ({dims})" for name, dims, _ in inputs)
        yield f"  # inputs: `weights`, a dict of parameters and buffers by name; then {others}"
        yield f"  sizes: [{', '.join(facts['sizes'])}]"
    is_declared = bool(outputs) and (all(dims for _, dims, _ in outputs) or bool(facts["updates"]))
    none = "  # outputs: {output: N M}       # those of the reference; name their dimensions where these are sizes"
    yield f"  outputs: {_dims(outputs)}" if is_declared else none
    if facts["updates"]:
        yield f"  updates: {_flow(facts['updates'])}   # changed in place"
    tensors = (inputs if is_function else []) + (outputs if is_declared else [])
    if types := {name: dtype for name, _, dtype in tensors if dtype}:
        yield f"  types: {_flow(types)}"
    if facts["attributes"]:
        yield f"  attributes: {_flow({name: _attribute(name, facts) for name in facts['attributes']})}"
    if facts["generated"]:
        yield "  parameters: {drawn: {kind: choice, choices: [normal, negative, far, ends]}}"


def _dims(tensors: Tensors) -> str:
    return _flow({name: dims or "..." for name, dims, _ in tensors})


def _attribute(name: str, facts: Mapping[str, Any]) -> str:
    value = facts["attributes"][name]
    return f"{{kind: {'flag' if isinstance(value, bool) else 'number'}, default: {_scalar(value)}}}"


def _tolerance(facts: Mapping[str, Any]) -> Iterator[str]:
    own = facts["tolerance"]
    types = {dtype for _, _, dtype in (*facts["inputs"], *facts["outputs"])}
    every = {"float32": own, **FLOATS, **({"float64": own} if "float64" in types else {})}
    for dtype, least in every.items():
        value = _scalar(max(own, least))
        yield f"  {dtype}: {{atol: {value}, rtol: {value}}}"


def _values(facts: Mapping[str, Any]) -> str:
    """Kinds of values of a target without a generator."""
    above, lines = set(facts["positive"]), []
    inputs = [name for name, _, _ in facts["inputs"]]
    if above:
        lines.append(f"  positive: {_flow({name: SHIFT['positive'] for name in inputs if name in above})}")
    for drawn in ("negative", "far"):
        if any(entry.get("drawn") == drawn for entry in facts["workloads"]["edges"]):
            shifted = {name: SHIFT["positive" if name in above else drawn] for name in inputs}
            lines.append(f"  {drawn}: {_flow(shifted)}")
    return "values:\n" + "\n".join(lines) + "\n" if lines else ""


def _entries(facts: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each workload; without a generator what is drawn is a kind of `values`."""
    for workload in entries:
        entry, drawn = {name: value for name, value in workload.items() if name != "drawn"}, workload.get("drawn")
        if facts["generated"]:
            entry |= {"drawn": drawn} if drawn else {}
        elif drawn == "ends":  # Every second seed does that, of its own accord.
            continue
        elif drawn or facts["positive"]:
            entry["values"] = drawn or "positive"
        yield f"    - {_flow({name: _scalar(value) for name, value in entry.items()})}"


def _scalar(value: Any) -> str:
    """A value as YAML reads it back: 1.0e-05, not 1e-05, which is a word."""
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value)


def _flow(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
