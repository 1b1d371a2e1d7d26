"""Judges answers by the rule that a task format states, if the format's own evaluator cannot run
here.

Program: `python -m loop.workers.stated TERMS RESULT`, both JSON files. It draws inputs with the
task's generator, runs the task's reference and the answer, and compares them by the format's rule.
Without answers it audits the task: inputs that never vary, equal cases, a reference that
contradicts float64.
"""

import hashlib
import itertools
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError, Tensor

from loop.base.processes import limit_memory
from loop.calls import torch_side
from loop.calls.callee import SplitStructure, digest, outputs_of, rebuild_structure, split_structure
from loop.calls.own_modules import search_folder
from loop.calls.torch_side import same_bits
from loop.mistakes.functions import floating_positions
from loop.workers.target_functions import draw_inputs, rebuild_inputs, run_check

SEED = 42
"""Seed set before each constructor."""
SEED_STEP = 104_729
MIN_TRIALS, TRIALS_LIMIT_S = 2, 10.0
"""Trials of each case once LONG_S seconds have passed. The second trial reveals cached answers."""
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory", "ALLOC_FAILED")
"""Parts of PyTorch's messages when memory, or our limit on it, is exhausted."""
MIN_MAGNITUDE = 1e-8
"""Smallest magnitude in the denominator of a relative error."""


class StatedTask:
    """A task's functions and the comparison rule of its format."""

    def __init__(self, terms: dict[str, Any]) -> None:
        self.terms = terms
        self.generator, self.reference, self.arguments, self.checker = (
            torch_side.find_function(terms[name]) if terms[name] else None
            for name in ("generator", "reference", "arguments", "checker")
        )

    def instantiate(self, function: Any, *, exact: bool = False) -> Any:
        """Return the function, or a new seeded instance if it is a class. `exact`: in float64."""
        if not self.terms["is_class"]:
            return function
        module = torch_side.make_instance(function, self.arguments, SEED)
        return (module.double() if exact else module).to(self.terms["device"])

    def draw_case(self, values: dict[str, Any], seed: int) -> SplitStructure:
        """Draw a case's inputs on the device. A seed in `values` overrides `seed`."""
        apart = draw_inputs(self.generator, values, seed, self.terms["passes"], self.terms["device"])
        return replace(apart, tensors=tuple(tensor.to(self.terms["device"]) for tensor in apart.tensors))

    def call_function(self, function: Any, apart: SplitStructure, *, exact: bool = False) -> Any:
        """Run a function on inputs, which it may change. `exact`: on float64 copies."""
        tensors = [t.double() if exact and t.is_floating_point() else t for t in apart.tensors]
        positional, keywords = rebuild_structure(apart.skeleton, tensors)
        return function(*positional, **keywords)

    def explain_rejection(self, apart: SplitStructure, expected: Any, output: Any) -> str:
        """Why an output is wrong by the format's rule; empty if it is right."""
        if self.checker is not None:
            copies = [tensor.clone() for tensor in apart.tensors]
            inputs = rebuild_inputs(apart.skeleton, copies, self.terms["passes"])
            values = {"inputs": inputs, "expected": expected, "outputs": output}
            return run_check(partial(self.checker, *(values[name] for name in self.terms["given"])))
        right, outputs = outputs_of(expected), outputs_of(output)
        if len(right) != len(outputs):
            return f"{len(outputs)} outputs where {len(right)} are expected"
        return next(filter(None, map(self.explain_difference, right.values(), outputs.values())), "")

    def explain_difference(self, expected: Tensor, output: Any) -> str:
        """Why one output tensor is wrong by the stated tolerance; empty if it is right."""
        if not isinstance(output, Tensor) or output.shape != expected.shape or output.dtype != expected.dtype:
            kind = f"{list(output.shape)} {output.dtype}" if isinstance(output, Tensor) else type(output).__name__
            return f"expected {list(expected.shape)} {expected.dtype}, got {kind}"
        if self.terms["strict"] and (type(output) is not Tensor or (expected.any() and not output.any())):
            return "no plain tensor" if type(output) is not Tensor else "all zeros"
        finite = output.isfinite() | ((output == -math.inf) & (expected == -math.inf))
        if self.terms["finite"] and not finite.all():
            return "NaN or infinity"
        right, got = expected.double(), output.double()
        if self.terms["cap"] is not None and ((got - right).abs() > self.terms["cap"]).any():
            return f"an error above {self.terms['cap']:g}"
        wrong = int(self.mask_wrong(right, got).sum())
        share = wrong / max(output.numel(), 1)
        return f"{wrong} of {output.numel()} elements" if share > 1 - self.terms["matched"] + 1e-12 else ""

    def mask_wrong(self, expected: Tensor, output: Tensor) -> Tensor:
        """Mask of elements with more error than the format allows; both arguments are float64."""
        atol, rtol = self.terms["atol"], self.terms["rtol"]
        error, size = (output - expected).abs(), expected.abs()
        if self.terms["either"]:
            wrong = (error > atol) & (error / (size + MIN_MAGNITUDE) > rtol)
        else:
            wrong = ~(error <= atol + rtol * size)
        same = (output == expected) | (output.isnan() & expected.isnan() & self.terms["nan"])
        denied: Tensor = (wrong | ~output.isfinite()) & ~same
        return denied


def copy_inputs(apart: SplitStructure) -> SplitStructure:
    """Copy the inputs for a function that may change them."""
    return replace(apart, tensors=tuple(tensor.clone() for tensor in apart.tensors))


def judge_answer(task: StatedTask, name: str) -> dict[str, Any]:
    """Judge one answer over all cases and trials; an exception counts as wrong. In the result,
    `same` tells whether every output and input was bitwise equal to the reference's."""
    same, begun = True, time.monotonic()
    try:
        answer, reference = task.instantiate(torch_side.find_function(name)), task.instantiate(task.reference)
        for case, trial in itertools.product(task.terms["cases"], range(task.terms["trials"])):
            if trial >= MIN_TRIALS and time.monotonic() - begun > TRIALS_LIMIT_S:
                continue
            apart = task.draw_case(case["given"], SEED + trial * SEED_STEP)
            kept = copy_inputs(apart)
            expected = task.call_function(reference, kept)
            output = task.call_function(answer, apart)
            if why := task.explain_rejection(kept, expected, output):
                return {"status": "wrong", "why": f"{case['name']}, trial {trial + 1}: {why}"}
            own = [*apart.tensors, *outputs_of(output).values()]
            right = [*kept.tensors, *outputs_of(expected).values()]
            same = same and len(own) == len(right) and all(map(same_bits, own, right))
    except Exception as error:
        # Lack of memory is a failure of the machine, not of the answer.
        short = isinstance(error, MemoryError | OutOfMemoryError) or any(
            words in str(error) for words in OUT_OF_MEMORY
        )
        return {"status": "failed" if short else "wrong", "why": f"{type(error).__name__}: {error}"[:300]}
    return {"status": "right", "why": "", "same": same}


def audit_task(task: StatedTask) -> dict[str, Any]:
    """Audit the task: shapes of the first case, and findings about inputs and reference."""
    looked: dict[str, Any] = {"inputs": [], "outputs": [], "findings": []}
    cases: dict[str, str] = {}
    for case in task.terms["cases"]:
        apart = task.draw_case(case["given"], SEED)
        if not looked["inputs"]:
            output = split_structure(task.call_function(task.instantiate(task.reference), copy_inputs(apart)))
            shapes = [
                [list(each.tensors[n].shape) for n in floating_positions(each.tensors)] for each in (apart, output)
            ]
            looked["inputs"], looked["outputs"] = shapes[0], shapes[1][:1]
            looked["findings"] += _find_float64_conflicts(task, apart)
        looked["findings"] += _find_seed_problems(task, case, apart)
        key = hashlib.sha256(b"".join([apart.skeleton, *map(digest, apart.tensors)])).hexdigest()
        if key in cases and apart.tensors:
            what = f"cases {cases[key]} and {case['name']} have the same inputs"
            looked["findings"].append({"kind": "equal cases", "what": what})
        cases.setdefault(key, case["name"])
    return looked


def _find_seed_problems(task: StatedTask, case: dict[str, Any], first: SplitStructure) -> Iterator[dict[str, str]]:
    """Findings about inputs that ignore the seed, or that the seed alone does not reproduce."""
    name, values = case["name"], case["given"]
    seeded = "seed" in values
    other = {**values, "seed": values["seed"] + 1} if seeded else values
    second = task.draw_case(other, SEED + 1)
    alike = zip(first.names, map(same_bits, first.tensors, second.tensors), first.tensors, strict=False)
    same = [path.split(".", 2)[-1] for path, equal, tensor in alike if equal and tensor.numel()]
    if same and len(same) == len(first.tensors):
        yield {"kind": "seed does nothing", "what": f"{name}: the same inputs for every seed"}
    elif same:
        yield {"kind": "never varies", "what": f"{name}: {', '.join(same)} the same for every seed"}
    if seeded and not all(map(same_bits, first.tensors, task.draw_case(values, SEED + 1).tensors)):
        yield {"kind": "unseeded", "what": f"{name}: its seed alone does not reproduce the inputs"}


def _find_float64_conflicts(task: StatedTask, apart: SplitStructure) -> Iterator[dict[str, str]]:
    """Findings where the reference violates its own rule when compared with its float64 version."""
    own = outputs_of(task.call_function(task.instantiate(task.reference), copy_inputs(apart)))
    try:
        exact = outputs_of(task.call_function(task.instantiate(task.reference, exact=True), apart, exact=True))
    except Exception as error:
        yield {"kind": "no float64", "what": f"the reference does not run in float64: {error}"[:300]}
        return
    for name, tensor in own.items() if task.terms["atol"] is not None else ():
        wide = exact[name]
        wrong = int(task.mask_wrong(wide.double(), tensor.double()).sum()) if wide.shape == tensor.shape else -1
        if wrong and tensor.is_floating_point():
            what = f"{wrong} of {tensor.numel()} elements of {name} are beyond the task's own tolerance"
            yield {"kind": "float64 disagrees", "what": what}


def judge_in_fork(task: StatedTask, name: str) -> dict[str, Any]:
    """Judge an answer in a forked process, which the answer may corrupt."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps(judge_answer(task, name)).encode())
        os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], task.terms["limit_s"])
    data = os.read(read, 1 << 16) if ready else b""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    if data:
        return json.loads(data)  # type: ignore[no-any-return]
    return {"status": "failed", "why": "it ended its process" if ready else "it did not end in its time"}


def main(terms: dict[str, Any]) -> dict[str, Any]:
    """Audit the task, or judge its answers if there are any."""
    limit_memory()
    search_folder(terms["folder"])
    torch_side.use_threads(terms["threads"])
    began, task = time.monotonic(), StatedTask(terms)
    if terms["answers"]:
        return {"verdicts": {name: judge_in_fork(task, function) for name, function in terms["answers"].items()}}
    return {**audit_task(task), "seconds": time.monotonic() - began}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
