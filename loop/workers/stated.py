"""Judges answers by the rule of a task format, if the format's own evaluator cannot run here.

Program: `python -m loop.workers.stated TERMS RESULT`, both JSON files. It draws inputs with the
task's generator, runs the reference and the answer, and compares them by the format's rule. Without
answers it audits the task: inputs that never vary, equal cases, a reference unlike float64."""

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
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError, Tensor

from loop.base.own_process import limit_memory
from loop.calls import callee
from loop.calls.callee import (
    SplitStructure,
    bits_of,
    bytes_of,
    outputs_by_path,
    rebuild_structure,
    same_bits,
    split_structure,
)
from loop.calls.own_modules import search_folder
from loop.mistakes.functions import floating_positions
from loop.workers.target_functions import SEED_STEP, draw_inputs, rebuild_inputs, run_check

SEED = 42  # Seed set before each constructor.
MIN_TRIALS, TRIALS_LIMIT_S = 2, 10.0
"""Trials of each case once TRIALS_LIMIT_S have passed. The second trial reveals cached answers."""
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory", "ALLOC_FAILED")
"""Parts of PyTorch's messages when memory, or our limit on it, is exhausted."""
Flaws = Iterator[tuple[str, str]]  # The kind of each flaw of a task, and a sentence.
MIN_MAGNITUDE = 1e-8  # Smallest magnitude in the denominator of a relative error.


class StatedTask:
    """A task's functions and the comparison rule of its format."""

    def __init__(self, terms: dict[str, Any]) -> None:
        """`terms`: the content of TERMS. A function it does not name is None. Raises Refused."""
        self.terms = terms
        names = ("generator", "reference", "arguments", "checker")
        functions = {name: callee.find_function(terms[name]) for name in names if terms[name]}
        self.generator, self.reference = functions.get("generator"), functions.get("reference")
        self.make_arguments, self.checker = functions.get("arguments"), functions.get("checker")

    def instantiate(self, function: Any, *, exact: bool = False) -> Any:
        """The function, or a new module from one seed, on the device. `exact`: in float64."""
        if not self.terms["is_class"]:
            return function
        module = callee.make_instance(function, self.make_arguments, SEED)
        return (module.double() if exact else module).to(self.terms["device"])

    def draw_case(self, arguments: dict[str, Any], seed: int) -> SplitStructure:
        """Draw a case's inputs. `arguments`: the generator's keywords; a seed in them wins."""
        device, passes = self.terms["device"], self.terms["passes"]
        drawn = draw_inputs(self.generator, arguments, seed, passes, device, "float32")
        return replace(drawn, tensors=tuple(tensor.to(device) for tensor in drawn.tensors))

    def call_function(self, function: Any, inputs: SplitStructure) -> Any:
        """Run a function on inputs, which it may change."""
        positional, keywords = rebuild_structure(inputs.skeleton, inputs.tensors)
        return function(*positional, **keywords)

    def explain_rejection(self, inputs: SplitStructure, expected: Any, output: Any) -> str:
        """Why an output is wrong by the format's rule; empty if it is right."""
        if self.checker is not None:
            copies = [tensor.clone() for tensor in inputs.tensors]
            rebuilt = rebuild_inputs(inputs.skeleton, copies, self.terms["passes"])
            values = {"inputs": rebuilt, "expected": expected, "outputs": output}
            return run_check(self.checker, [values[name] for name in self.terms["given"]])
        right_tensors = outputs_by_path(expected).values()
        tensors = outputs_by_path(output).values()
        if len(right_tensors) != len(tensors):
            return f"{len(tensors)} outputs where {len(right_tensors)} are expected"
        for right_tensor, tensor in zip(right_tensors, tensors, strict=True):
            if reason := self.explain_difference(right_tensor, tensor):
                return reason
        return ""

    def explain_difference(self, expected: Tensor, output: Any) -> str:
        """Why an output tensor is wrong by the stated rule; empty if right. `strict` terms refuse
        subclasses and all zeros; `matched` is the share of elements that must be in tolerance."""
        expected_form, form = f"{list(expected.shape)} {expected.dtype}", type(output).__name__
        if isinstance(output, Tensor):
            form = f"{list(output.shape)} {output.dtype}"
        if form != expected_form:
            return f"expected {expected_form}, got {form}"
        if self.terms["strict"] and type(output) is not Tensor:
            return "no plain tensor"
        if self.terms["strict"] and expected.any() and not output.any():
            return "all zeros"
        is_accepted = output.isfinite() | ((output == -math.inf) & (expected == -math.inf))
        if self.terms["finite"] and not is_accepted.all():
            return "NaN or infinity"
        cap = self.terms["cap"]
        expected_values, output_values = expected.double(), output.double()
        if cap is not None and ((output_values - expected_values).abs() > cap).any():
            return f"an error above {cap:g}"
        wrong_count = int(self.mask_wrong(expected_values, output_values).sum())
        wrong_share = wrong_count / max(output.numel(), 1)
        if wrong_share > 1 - self.terms["matched"] + 1e-12:  # 1e-12: the difference is rounded.
            return f"{wrong_count} of {output.numel()} elements"
        return ""

    def mask_wrong(self, expected: Tensor, output: Tensor) -> Tensor:
        """Mask of elements with more error than the format allows; both in float64. By the rule
        `either`, an element is right within the absolute or the relative limit, else their sum."""
        atol, rtol = self.terms["atol"], self.terms["rtol"]
        error, magnitude = (output - expected).abs(), expected.abs()
        exceeds_limits = ~(error <= atol + rtol * magnitude)
        if self.terms["either"]:
            exceeds_limits = (error > atol) & (error / (magnitude + MIN_MAGNITUDE) > rtol)
        is_equal = output == expected
        if self.terms["nan"]:
            is_equal |= output.isnan() & expected.isnan()
        denied: Tensor = (exceeds_limits | ~output.isfinite()) & ~is_equal
        return denied


def copy_inputs(inputs: SplitStructure, *, exact: bool = False) -> SplitStructure:
    """Copy the inputs for a function that may change them. `exact`: in float64."""
    tensors = [t.double() if exact and t.is_floating_point() else t for t in inputs.tensors]
    return replace(inputs, tensors=tuple(tensor.clone() for tensor in tensors))


def judge_answer(task: StatedTask, function_name: str) -> dict[str, Any]:
    """Judge one answer over all cases and trials: `status` and `why`; an exception counts as wrong,
    lack of memory as failed. If right, `same`: whether it equals the reference's bit by bit."""
    is_same, start_s = True, time.monotonic()
    try:
        answer = task.instantiate(callee.find_function(function_name))
        reference = task.instantiate(task.reference)
        for case, trial in itertools.product(task.terms["cases"], range(task.terms["trials"])):
            # After the time limit each further case still gets its first trials.
            if trial >= MIN_TRIALS and time.monotonic() - start_s > TRIALS_LIMIT_S:
                continue
            inputs = task.draw_case(case["given"], SEED + trial * SEED_STEP)
            reference_inputs = copy_inputs(inputs)
            expected = task.call_function(reference, reference_inputs)
            output = task.call_function(answer, inputs)
            reason = task.explain_rejection(reference_inputs, expected, output)
            if reason:
                return {"status": "wrong", "why": f"{case['name']}, trial {trial + 1}: {reason}"}
            tensors = [*inputs.tensors, *outputs_by_path(output).values()]
            right_tensors = [*reference_inputs.tensors, *outputs_by_path(expected).values()]
            has_same_count = len(tensors) == len(right_tensors)
            is_same = is_same and has_same_count and all(map(same_bits, tensors, right_tensors))
    except Exception as error:
        # Lack of memory is a failure of the machine, not of the answer.
        lacks_memory = isinstance(error, MemoryError | OutOfMemoryError)
        lacks_memory |= any(words in str(error) for words in OUT_OF_MEMORY)
        status = "failed" if lacks_memory else "wrong"
        return {"status": status, "why": f"{type(error).__name__}: {error}"[:300]}
    return {"status": "right", "why": "", "same": is_same}


def audit_task(task: StatedTask) -> dict[str, Any]:
    """Audit the task. Returns shapes of the first case's floating-point `inputs`, of its first such
    output (`outputs`, with one shape or none), and `findings`: flaws of the task in all cases."""
    flaws, name_by_digest = list[tuple[str, str]](), dict[str, str]()
    shapes: list[list[list[int]]] = [[], []]
    for case in task.terms["cases"]:
        inputs = task.draw_case(case["given"], SEED)
        if case is task.terms["cases"][0]:
            output = task.call_function(task.instantiate(task.reference), copy_inputs(inputs))
            for number, split in enumerate((inputs, split_structure(output))):
                tensors = [split.tensors[n] for n in floating_positions(split.tensors)]
                shapes[number] = [list(tensor.shape) for tensor in tensors]
            flaws += _find_float64_conflicts(task, inputs, outputs_by_path(output))
        flaws += _find_seed_problems(task, case, inputs)
        contents = [bytes_of(bits_of(tensor).cpu()) for tensor in inputs.tensors]
        case_digest = hashlib.sha256(b"".join([inputs.skeleton, *contents])).hexdigest()
        if case_digest in name_by_digest and inputs.tensors:
            what = f"cases {name_by_digest[case_digest]} and {case['name']} have the same inputs"
            flaws.append(("equal cases", what))
        name_by_digest.setdefault(case_digest, case["name"])
    findings = [{"kind": kind, "what": what} for kind, what in flaws]
    return {"inputs": shapes[0], "outputs": shapes[1][:1], "findings": findings}


def _find_seed_problems(task: StatedTask, case: dict[str, Any], inputs: SplitStructure) -> Flaws:
    """Flaws of inputs that ignore the seed, or that the case's own seed does not repeat."""
    name, arguments = case["name"], case["given"]
    has_own_seed = "seed" in arguments
    other_arguments = {**arguments, "seed": arguments["seed"] + 1} if has_own_seed else arguments
    other_tensors = task.draw_case(other_arguments, SEED + 1).tensors
    columns = zip(inputs.names, inputs.tensors, other_tensors, strict=False)
    constant = [path for path, drawn, other in columns if drawn.numel() and same_bits(drawn, other)]
    constant_names = [path.split(".", 2)[-1] for path in constant]
    if constant_names and len(constant_names) == len(inputs.tensors):
        yield "seed does nothing", f"{name}: the same inputs for every seed"
    elif constant_names:
        yield "never varies", f"{name}: {', '.join(constant_names)} the same for every seed"
    if has_own_seed:
        redrawn = task.draw_case(arguments, SEED + 1)  # The case's own seed overrides this one.
        if not all(map(same_bits, inputs.tensors, redrawn.tensors)):
            yield "unseeded", f"{name}: its seed alone does not reproduce the inputs"


def _find_float64_conflicts(
    task: StatedTask, inputs: SplitStructure, outputs: dict[str, Tensor]
) -> Flaws:
    """Flaws of a reference that violates its own rule when compared with its float64 version.
    `outputs`: what it gives on the inputs, by name."""
    try:
        exact_reference = task.instantiate(task.reference, exact=True)
        exact_inputs = copy_inputs(inputs, exact=True)
        exact_outputs = outputs_by_path(task.call_function(exact_reference, exact_inputs))
    except Exception as error:
        yield "no float64", f"the reference does not run in float64: {error}"[:300]
        return
    if task.terms["atol"] is None:  # The format states no tolerance to compare with.
        return
    for name, tensor in outputs.items():
        exact, wrong_count = exact_outputs[name], -1  # -1: another shape.
        if exact.shape == tensor.shape:
            wrong_count = int(task.mask_wrong(exact.double(), tensor.double()).sum())
        if wrong_count and tensor.is_floating_point():
            elements = f"{wrong_count} of {tensor.numel()} elements of {name}"
            yield "float64 disagrees", f"{elements} are beyond the task's own tolerance"


def judge_in_fork(task: StatedTask, function_name: str) -> dict[str, Any]:
    """Judge an answer in a forked process, which the answer may corrupt. Returns as `judge_answer`,
    with the status `failed` if the process ends early or exceeds the task's `limit_s` seconds."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write_end, json.dumps(judge_answer(task, function_name)).encode())
        finally:  # Also where the answer raises SystemExit: this is not the parent.
            os._exit(0)
    os.close(write_end)
    ready, _, _ = select.select([read_end], [], [], task.terms["limit_s"])
    verdict = os.read(read_end, 1 << 16) if ready else b""  # JSON of at most some hundred bytes.
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read_end)
    if verdict:
        return json.loads(verdict)  # type: ignore[no-any-return]
    reason = "it ended its process" if ready else "it did not end in its time"
    return {"status": "failed", "why": reason}


def main(terms: dict[str, Any]) -> dict[str, Any]:
    """Audit the task; if `terms` has answers, return only `verdicts`: each answer's, by name."""
    limit_memory()
    search_folder(terms["folder"])
    callee.use_threads(terms["threads"])
    start_s, task = time.monotonic(), StatedTask(terms)
    if terms["answers"]:
        answers = terms["answers"].items()
        return {"verdicts": {name: judge_in_fork(task, function) for name, function in answers}}
    return {**audit_task(task), "seconds": time.monotonic() - start_s}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
