"""Write the text of a first `target.yaml`."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.places import MANIFEST
from loop.starting.facts import Facts
from loop.starting.model import Scalar
from loop.starting.trial import Trial

LEAST_TOLERANCE = {"float32": 0.0, "float16": 1e-2, "bfloat16": 1e-2}
DOUBLE_TOLERANCE = 1e-9
"""Of a kernel that gets nothing but float64: a part of it that computes in float32 loses more."""
WHOLE = re.compile(r"u?int|bool")
DISTRIBUTIONS = {"negative": "{kind: normal, offset: -8}", "positive": "{kind: normal, offset: 8}"}
DISTRIBUTIONS |= {"far": "{kind: normal, scale: 30, offset: -240}", "shifted": "{kind: normal, offset: 100}"}
DISTRIBUTIONS["zeros"] = "{kind: zeros}"
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


def manifest(folder: Path, trial: Trial, facts: Facts, variant: str, module_names: Mapping[str, str]) -> str:
    """The text of target.yaml. `variant`: the YAML line of the first variant. `module_names`: `reference`, `mine`
    and `inputs` to the name of that module."""
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.absolute().name.lower()).strip("-_")[:48]
    generator = f'generator: {{python: "{module_names["inputs"]}:make"}}   # makes the inputs\n'
    edges = "  # edges: [...]                  # name the sizes at which a kernel may go wrong: 1, 63 and 65"
    if facts.edges:
        edges = "  edges:                          # only checked: add sizes at which your kernel may go wrong\n"
        edges += "\n".join(_workload_lines(trial, facts.edges))
    if facts.long:
        edges += "\n  long:                           # only checked: if your kernel has a limit, say `takes`\n"
        edges += "\n".join(_workload_lines(trial, facts.long))
    tolerances = {dtype: max(facts.tolerance, least) for dtype, least in LEAST_TOLERANCE.items()}
    if any(tensor.dtype == "float64" for tensor in (*trial.inputs, *facts.outputs)):
        floats = {tensor.dtype for tensor in trial.inputs if not WHOLE.match(tensor.dtype)}
        tolerances["float64"] = DOUBLE_TOLERANCE if floats == {"float64"} else facts.tolerance
    tolerance_lines = []
    for dtype, error in tolerances.items():
        tolerance_lines.append(f"  {dtype}: {{atol: {_yaml_scalar(error)}, rtol: {_yaml_scalar(error)}}}")
    return TEXT.format(
        path=MANIFEST,
        notes="".join(f"# guessed: {note}\n" for note in trial.notes),
        name=name if name[:1].isalpha() else f"target-{name}".rstrip("-"),
        function=trial.subject.function,
        signature="\n".join(_signature_lines(trial, facts)),
        generator=generator if trial.needs_generator else "",
        reference=f"{module_names['reference']}:{trial.subject.function}",
        tolerance="\n".join(tolerance_lines),
        values="" if trial.needs_generator else _values_text(trial, facts.edges),
        quick="\n".join(_workload_lines(trial, facts.quick)),
        edges=edges,
        variant=variant,
    )


def _values_text(trial: Trial, edges: Sequence[Mapping[str, Any]]) -> str:
    """The text of `values` in target.yaml: by name, distributions to draw from; or empty."""
    drawn = {workload.get("drawn") for workload in edges}
    names = [tensor.name for tensor in trial.inputs if tensor.values == "positive"]
    positive = dict.fromkeys(names, DISTRIBUTIONS["positive"])
    lines = [f"  positive: {_yaml_mapping(positive)}\n"] if positive else []
    for name in ("negative", "far", "shifted", "zeros"):
        if name in drawn:
            inputs = [trial.first_normal] if name == "shifted" else trial.inputs
            distributions = {tensor.name: DISTRIBUTIONS[name] for tensor in inputs if tensor} | positive
            lines.append(f"  {name}: {_yaml_mapping(distributions)}\n")
    return "".join(["values:\n", *lines]) if lines else ""


def _signature_lines(trial: Trial, facts: Facts) -> list[str]:
    """The lines of `signature` in target.yaml."""
    dims = {tensor.name: " ".join(tensor.dims) for tensor in (*trial.inputs, *facts.outputs)}
    is_function = trial.subject.kind == "function"
    if is_function:
        inputs = _yaml_mapping({tensor.name: dims[tensor.name] for tensor in trial.inputs})
        lines = [f"  inputs: {inputs}   # dimensions by name"]
    else:  # A module or another object: `weights` are its tensors.
        inputs = ", ".join(f"{tensor.name} ({dims[tensor.name]})" for tensor in trial.inputs)
        lines = [f"  # inputs: `weights`, a dict of parameters and buffers by name; then {inputs}"]
        lines.append(f"  sizes: [{', '.join(trial.dims)}]")
    # Without `outputs`, loop takes those of the reference. With `updates` they have to be there.
    outputs = {tensor.name: dims[tensor.name] or "..." for tensor in facts.outputs}
    is_declared = bool(outputs) and ("..." not in outputs.values() or bool(facts.updates))
    if is_declared:
        lines.append(f"  outputs: {_yaml_mapping(outputs)}")
    else:
        comment = "those of the reference; name their dimensions where these are sizes"
        lines.append(f"  # outputs: {{output: N M}}       # {comment}")
    if facts.updates:  # Output to the input that it is.
        lines.append(f"  updates: {_yaml_mapping(facts.updates)}   # changed in place")
    tensors = (trial.inputs if is_function else []) + (facts.outputs if is_declared else [])
    types = {tensor.name: tensor.dtype for tensor in tensors if tensor.dtype}
    if types:
        lines.append(f"  types: {_yaml_mapping(types)}")
    attributes: dict[str, str] = {}
    for name, value in trial.attributes.items():
        kind = "flag" if isinstance(value, bool) else "number"
        attributes[name] = f"{{kind: {kind}, default: {_yaml_scalar(value)}}}"
    if attributes:
        lines.append(f"  attributes: {_yaml_mapping(attributes)}")
    if trial.needs_generator:
        choices = "{kind: choice, choices: [normal, negative, far, shifted, ends, zeros]}"
        lines.append(f"  parameters: {{drawn: {choices}}}")
    return lines


def _workload_lines(trial: Trial, workloads: Iterable[Mapping[str, Scalar | str]]) -> list[str]:
    """A line for each workload. `drawn` is a generator's parameter; without one it becomes one of `values`."""
    usual = '"positive"' if any(tensor.values == "positive" for tensor in trial.inputs) else ""
    lines = []
    for workload in workloads:
        entry = {name: _yaml_scalar(value) for name, value in workload.items()}
        if not trial.needs_generator:
            drawn = entry.pop("drawn", usual)
            if drawn == '"ends"':  # Every second seed of `values` draws these by default.
                continue
            entry |= {"values": drawn} if drawn else {}
        lines.append(f"    - {_yaml_mapping(entry)}")
    return lines


def _yaml_scalar(value: Any) -> str:
    """A value as YAML text that reads back: 1.0e-05, because YAML takes 1e-05 for a string."""
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value)


def _yaml_mapping(values: Mapping[str, object]) -> str:
    """A YAML mapping on one line; the values are YAML text."""
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
