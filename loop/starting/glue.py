"""The entry that gives a plain function in C its tensors, sizes and values, by name or in order."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.starting.c_text import STREAM, CFunction, Parameter

TERMS = "const LoopTensor *loop_in, LoopTensor *loop_out, const double *loop_attributes, void *loop_stream"
SCRATCH = re.compile(r"(?i).*(scratch|work|tmp|temp|buf|ws|cache).*")
COUNT = re.compile(r"(?i)(n|len|length|size|count|total|numel|elements|num_elements|nelem|num)")
GLUE = """\
/* Made by loop: gives `{name}` its tensors. Mend the call where loop guessed wrong. */
#include "loop_kernel.h"
#include <stdlib.h>

/* Elements of a contiguous tensor of a type; -1 for any other. */
static int64_t loop_elements(const LoopTensor *tensor, int dtype) {{
  int64_t count = 1;
  for (int i = tensor->rank - 1; i >= 0; count *= tensor->sizes[i--])
    if (tensor->sizes[i] > 1 && tensor->strides[i] != count) return -1;
  return tensor->dtype == dtype ? count : -1;
}}
static void *loop_data(const LoopTensor *tensor) {{ return tensor->data; }}
static int64_t loop_size(const LoopTensor *tensor, int axis) {{ return tensor->sizes[axis]; }}

#include "{source}"

LOOP_EXPORT const char *loop_error(int loop_code) {{
  return loop_code == 1 ? "{wants}" : loop_code == 2 ? "{name} returned an error" : "";
}}

LOOP_EXPORT int loop_entry({terms}) {{
  (void)loop_attributes, (void)loop_stream;
{body}  return 0;
}}
"""
RESULTS = ("float", "double", "int")
"""Types that a function without an output among its parameters returns its only one in."""
FLOATING = ("float32", "float64", "bool")
"""Types of numbers that are no sizes."""


@dataclass(frozen=True)
class Glue:
    """A plain function for which an entry is written."""

    path: Path
    function: CFunction
    constants: Mapping[str, Any]
    """Values of its parameters that the function that is right does not take."""

    @property
    def tensors(self) -> list[Parameter]:
        """Its pointers."""
        return [parameter for parameter in self.function.parameters if parameter.pointers == 1 and parameter.dtype]

    @property
    def numbers(self) -> list[Parameter]:
        """What it takes by value."""
        return [parameter for parameter in self.function.parameters if not parameter.pointers and parameter.dtype]

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the tensors that it may write."""
        return tuple(pointer.name for pointer in self.tensors if not pointer.is_const)

    def types(self, inputs: Sequence[str]) -> dict[str, str]:
        """The element type of each input by the parameter of its name, else in order."""
        own = {pointer.name: pointer.dtype or "" for pointer in self.tensors}
        constant = [pointer.dtype or "" for pointer in self.tensors if pointer.is_const]
        in_order = constant or list(own.values())
        return {name: own.get(name) or (in_order[n] if n < len(in_order) else "") for n, name in enumerate(inputs)}

    def outputs(self, inputs: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Where no function says what is right yet: one for each tensor that is written, as the first input."""
        input_names = {name for name, _, _ in inputs}
        written = [pointer for pointer in self.tensors if not pointer.is_const and pointer.name not in input_names]
        written = written[-max(len(self.tensors) - len(inputs), 0) :] if len(written) > 1 else written
        if len(written) > 1:
            written = [pointer for pointer in written if not SCRATCH.fullmatch(pointer.name)]
        names = [pointer.name for pointer in written] if len(written) > 1 else ["output"]
        types = ["" if pointer.dtype == "float32" else pointer.dtype or "" for pointer in written]
        return [(name, inputs[0][1], dtype) for name, dtype in zip(names, types, strict=False)]

    def text(self, facts: Mapping[str, Any]) -> tuple[str, list[str]]:
        """The source of the entry, and what was guessed. Raises UsageError for a parameter that is not clear."""
        name, parameters = self.function.name, self.function.parameters
        if self.function.lacks:
            raise self._unclear(self.function.lacks)
        if self.path.suffix == ".cu" and not any(parameter.type == STREAM for parameter in parameters):
            message = f"{self.path}:{self.function.line}: {name} does not say on which stream it launches"
            raise UsageError(message, hint=f"give it a parameter `{STREAM} stream`, and launch on that")
        places, notes = self._places(facts)
        call = ", ".join(self._argument(parameter, places, facts) for parameter in parameters)
        types = dict.fromkeys(dtype or "float32" for _, _, dtype in facts["inputs"])
        body = "".join(f"  {statement}\n" for statement in self._body(call, places, facts))
        wants = f"tensors must be contiguous {', '.join(types)}"
        return GLUE.format(name=name, source=self.path.name, terms=TERMS, wants=wants, body=body), notes

    def _unclear(self, what: str, hint: str = "") -> UsageError:
        write = f"change it, or write an entry: LOOP_EXPORT int {self.function.name.lower()}_entry({TERMS})"
        return UsageError(f"{self.path}:{self.function.line}: {what}", hint=hint or write)

    def _places(self, facts: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """What each pointer is: `&loop_in[0]`, `&loop_out[0]` or `scratch`; and what was guessed."""
        inputs, outputs = _inputs(facts), _outputs(facts)
        places = self._by_name(inputs, outputs)
        if self.function.returns in RESULTS and not self.written:
            outputs = {}
        input_places, output_places = (
            [place for place in every.values() if place not in places.values()] for every in (inputs, outputs)
        )
        unnamed = [pointer for pointer in self.tensors if pointer.name not in places]
        read, written, scratch = _shared_out(unnamed, len(input_places), len(output_places))
        if len(read) != len(input_places) or len(written) != len(output_places):
            raise self._mismatch(facts, read[len(input_places) :], written[len(output_places) :])
        names = [pointer.name for pointer in read + written]
        places |= dict(zip(names, input_places + output_places, strict=True))
        places |= dict.fromkeys((pointer.name for pointer in scratch), "scratch")
        size = "zeros, 8 bytes for each element of all tensors, and 1 MiB"
        return places, [f"`{pointer.text}` is scratch memory: {size}" for pointer in scratch]

    def _by_name(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, str]:
        """What each pointer is whose name tells."""
        places: dict[str, str] = {}
        for pointer in self.tensors:
            place = _same(pointer.name, inputs) or (None if pointer.is_const else outputs.get(pointer.name))
            if place and place not in places.values():
                places[pointer.name] = place
        return places

    def _mismatch(
        self, facts: Mapping[str, Any], surplus_inputs: Sequence[Parameter], surplus_outputs: Sequence[Parameter]
    ) -> UsageError:
        """What is said of tensors that are neither inputs nor outputs."""
        name, several = self.function.name, len(facts["outputs"])
        if surplus_inputs:
            what = f"`{surplus_inputs[0].text}` of {name} is not clear: there is no input for it"
            return self._unclear(what, f"give its sizes: --like {surplus_inputs[0].name}=N,M")
        if surplus_outputs:
            what = f"`{surplus_outputs[0].text}` of {name} is not clear: what is right gives {several} outputs"
            return self._unclear(
                what, "mark inputs `const`, call scratch memory scratch, or have --reference give as many"
            )
        return self._unclear(
            f"{name} has fewer tensors than there are inputs and outputs: {len(facts['inputs'])} and {several}"
        )

    def _argument(self, parameter: Parameter, places: Mapping[str, str], facts: Mapping[str, Any]) -> str:
        """What a parameter is given."""
        name, kind = parameter.name, f"{parameter.type} *" if parameter.pointers else parameter.type
        if parameter.type == STREAM or (parameter.type == "void" and "stream" in name.lower()):
            return f"({kind})loop_stream"
        if name in places:
            place = f"loop_{name}" if places[name] == "scratch" else f"loop_data({places[name]})"
            return f"({'const ' if parameter.is_const else ''}{kind}){place}"
        is_number = not parameter.pointers and parameter.dtype
        if is_number and name in self.constants and name not in facts["attributes"]:
            return json.dumps(self.constants[name])
        expression = self._number(parameter, facts) if is_number else None
        if expression is None:
            wants = (
                f"expected a pointer to elements for each tensor, and sizes called {' or '.join(_sizes(facts))}"
            )
            hint = f"--set {name}=VALUE where it is a constant" if is_number else ""
            raise self._unclear(f"`{parameter.text}` of {self.function.name} is not clear; {wants}", hint)
        return expression

    def _number(self, number: Parameter, facts: Mapping[str, Any]) -> str | None:
        """A size, an attribute, or how many elements the first input has."""
        attributes = {name: f"({number.type})loop_attributes[{n}]" for n, name in enumerate(facts["attributes"])}
        if number.name in attributes or number.dtype in FLOATING:
            return _same(number.name, attributes)
        sizes = _sizes(facts)
        whole = [
            size.name for size in self.numbers if size.dtype not in FLOATING and not _same(size.name, attributes)
        ]
        is_alone = whole == [number.name] and [word.lower() for word in sizes] != [number.name.lower()]
        unknown = [name for name in whole if not _same(name, sizes)]
        if is_alone or (unknown == [number.name] and COUNT.fullmatch(number.name)):
            return f"loop_elements(&loop_in[0], {_number_of(facts['inputs'][0][2])})"
        return _same(number.name, sizes) or _same(number.name, attributes)

    def _body(self, arguments: str, places: Mapping[str, str], facts: Mapping[str, Any]) -> list[str]:
        """The lines of the entry."""
        lines = [
            f"if (loop_elements(&loop_in[{n}], {_number_of(dtype)}) < 0) return 1;"
            for n, (_, _, dtype) in enumerate(facts["inputs"])
        ]
        scratch = [name for name, place in places.items() if place == "scratch"]
        every = [place[1:] for place in (*_inputs(facts).values(), *_outputs(facts).values())]
        count = " + ".join(f"loop_elements(&{place}, {place}.dtype)" for place in every)
        lines += [f"void *loop_{name} = calloc(8 * ({count}) + (1 << 20), 1);" for name in scratch]
        call, returns = f"{self.function.called}({arguments})", self.function.returns
        freed = [f"free(loop_{name});" for name in scratch]
        is_written = bool(facts["updates"]) or any(place.startswith("&loop_out") for place in places.values())
        if is_written and returns in ("int", "cudaError_t", "bool"):
            status = f"int loop_status = {'!' if returns == 'bool' else '(int)'}{call};"
            return [*lines, status, *freed, "if (loop_status) return 2;"]
        if not is_written and returns in RESULTS:
            call = f"*({returns} *)loop_data(&loop_out[0]) = {call}"
        return [*lines, f"{call};", *freed]


def _shared_out(
    unnamed: Sequence[Parameter], inputs: int, outputs: int
) -> tuple[list[Parameter], list[Parameter], list[Parameter]]:
    """Pointers that no name tells, as inputs, outputs and scratch memory: by `const`, then in order."""
    input_pointers = [pointer for pointer in unnamed if pointer.is_const]
    output_pointers = [pointer for pointer in unnamed if not pointer.is_const]
    unmarked = max(inputs - len(input_pointers), 0)
    extra = max(len(output_pointers) - outputs - unmarked, 0)
    scratch = [pointer for pointer in output_pointers if SCRATCH.fullmatch(pointer.name)][:extra]
    output_pointers = [pointer for pointer in output_pointers if pointer not in scratch]
    return input_pointers + output_pointers[:unmarked], output_pointers[unmarked:], scratch


def _inputs(facts: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"&loop_in[{n}]" for n, (name, _, _) in enumerate(facts["inputs"])}


def _outputs(facts: Mapping[str, Any]) -> dict[str, str]:
    """Those that are no inputs changed in place."""
    fresh = [name for name, _, _ in facts["outputs"] if name not in facts["updates"]]
    return {name: f"&loop_out[{n}]" for n, name in enumerate(fresh)}


def _sizes(facts: Mapping[str, Any]) -> dict[str, str]:
    """Each size by name, as the first tensor that has it gives it."""
    fresh = [output for output in facts["outputs"] if output[0] not in facts["updates"]]
    sizes: dict[str, str] = {}
    for place, tensors in (("loop_in", facts["inputs"]), ("loop_out", fresh)):
        for n, (_, dims, _) in enumerate(tensors):
            for axis, word in enumerate((dims or "").split()):
                sizes.setdefault(word, f"loop_size(&{place}[{n}], {axis})")
    return sizes


def _number_of(dtype: str) -> str:
    """The name of a type in loop_kernel.h."""
    name = {"float8_e4m3fn": "FLOAT8_E4M3"}.get(dtype, (dtype or "float32").upper())
    return f"LOOP_{name}"


def _same(name: str, known: Mapping[str, str]) -> str | None:
    """What is known by a name: in the same letters, or in others where that is clear."""
    matches = [value for key, value in known.items() if key.lower() == name.lower()]
    return known.get(name) or (matches[0] if len(matches) == 1 else None)
