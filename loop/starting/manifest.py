"""The text of a first `target.yaml`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.places import MANIFEST

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
