"""The judge: makes inputs, computes right answers, compares outputs. It never loads a candidate."""

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, Refused, TensorFile, place_in_block
from loop.calls.callee import check_result, view_output
from loop.calls.torch_side import DTYPE_NAMES, TORCH_DTYPES
from loop.model.dtypes import is_floating
from loop.model.signature import Tolerance
from loop.workers import judge_messages, suspects, truth
from loop.workers.asking import Inputs, TargetFunctions, choose_reference_device
from loop.workers.blind_spots import DrawnInputs, find_blind_spots
from loop.workers.judge_messages import Finding
from loop.workers.messages import Request
from loop.workers.relations import PropertyRunner
from loop.workers.truth import IMPLAUSIBLE, MAX_SLACK, Truth, would_pass_zeros
from loop.workers.workload_call import has_unknown_outputs, only_output_dimensions

NOISE_DRAWS, NOISE_STEP, NOISE_SLACK = 8, 2.0**-51, 4.0
"""Random changes of inputs by STEP (two float64 roundings); SLACK times their effect is allowed."""
MAX_NOISE_SHARE = 1e-9
"""Errors below this share of the largest input or output value may be float64's own rounding."""


@dataclass
class Answer:
    """The right answer to a call."""

    inputs: Inputs
    truths: list[Truth]
    """One for each output."""
    ran_in_own_types: bool = False
    """Whether the reference also ran in the call's own element types."""
    raw_result: Any = None
    """The raw result of that run, for the task's own checker; None without a checker."""
    notes: tuple[str, ...] = ()
    """What the inputs or the reference could not test."""

    def copy_to(self, device: str) -> "Answer":
        """Copy the answer to a device."""
        return replace(
            self, inputs=self.inputs.copy_to(device), truths=[truth.copy_to(device) for truth in self.truths]
        )


class Judge:
    """Stores the right answer of every call that the session asked it to expect."""

    def __init__(self, terms: judge_messages.SetTarget) -> None:
        torch_side.use_threads(terms.threads)
        self.functions = TargetFunctions(terms)
        self.reference, self.plain, self.canonical_form = (
            self.functions.reference,
            self.functions.plain,
            self.functions.canonical_form,
        )
        self.signature, self.tolerance_by_dtype = terms.signature, terms.tolerance_by_dtype
        self.checker_decides = terms.checker is not None and terms.checker.alone
        """Whether the task's own checker decides without a comparison by tolerance."""
        self.answer_by_key: dict[str, Answer] = {}
        self.drawn_inputs = DrawnInputs()
        self.property_runner = PropertyRunner(terms.signature, terms.tolerance_by_dtype, self.plain)

    def reply_to(self, request: Request[Any]) -> object:
        """Reply to a request about the target."""
        answers: dict[type, Callable[[Any], object]] = {
            judge_messages.PrepareAnswer: self.prepare_answer,
            judge_messages.Compare: self.compare,
            judge_messages.FindBlindSpots: partial(
                find_blind_spots, self.functions, self.reference, self.drawn_inputs
            ),
            judge_messages.AdvanceProperty: self.property_runner.advance,
        }
        if isinstance(request, judge_messages.DiscardAnswer):
            self.answer_by_key.pop(request.key, None)
            return None
        reply = answers[type(request)](request)
        with contextlib.suppress(RuntimeError):  # A failed reference may leave the CUDA context unusable.
            torch.cuda.empty_cache()  # Give torch's cached GPU memory to the workers.
        return reply

    def prepare_answer(self, request: judge_messages.PrepareAnswer) -> judge_messages.PreparedAnswer:
        """Write the inputs of a call and compute its right answer. `doubt` in the reply: reference
        and plain implementation contradict each other. `unjudged`: no output can be judged."""
        inputs = self.functions.make_inputs(request)
        self.drawn_inputs.record(inputs)
        place = choose_reference_device(request, inputs)
        try:
            answer = self._compute_answer(inputs.copy_to(place), request)
        except (Refused, RuntimeError):  # The reference may support only the CPU, or need too much GPU memory.
            if place == "cpu":
                raise
            answer = self._compute_answer(inputs, request)
        self.answer_by_key[request.call.key] = answer
        floating = [each for each in answer.truths if not each.is_integer]
        doubts = map(truth.explain_doubt, floating if self.plain or answer.ran_in_own_types else [])
        whose = "`plain`" if self.plain else "the reference"
        unjudged = [truth.explain_unjudged(each, whose) for each in floating if not self.checker_decides]
        return judge_messages.PreparedAnswer(
            call=answer.inputs.call if request.has_unknown_outputs or self.functions.generator else None,
            notes=(*inputs.notes, *answer.notes),
            doubt=next(filter(None, doubts), ""),
            unjudged_reason=next(filter(None, unjudged), ""),
            passes_zeros=not self.checker_decides
            and bool(floating)
            and all(map(self.would_pass_zeros, answer.truths)),
        )

    def would_pass_zeros(self, right: Truth) -> bool:
        """Whether an all-zero output would pass as right."""
        zeros = torch.zeros_like(right.reference, dtype=TORCH_DTYPES[right.file.dtype])
        as_stated = would_pass_zeros(right.tolerance, right.reference)
        return as_stated and self._worst_finding(right, [zeros]).badness[:2] == (0, False)

    def _compute_answer(self, inputs: Inputs, request: judge_messages.PrepareAnswer) -> Answer:
        """Compute the right answer of a call. Raises Refused if two runs (`twice`) differ."""
        call, tensors, finds = inputs.call, inputs.tensors, request.has_unknown_outputs
        plain, native, expected = None, None, None
        if finds or call.structure or call.parts or not is_floating(call.output.dtype):
            native, expected = self._run_in_own_types(call, tensors)
        if self.plain is not None:
            plain, _ = self.functions.compute_outputs("plain", self.plain, tensors, call, exact=False)
        if finds and native is not None:
            call = self._with_output_files(call, native)
        right, notes = self._run_in_float64(call, tensors, native)
        lossy = plain or native or {}
        pairs = list(zip(right.values(), call.outputs, strict=True))
        if not lossy and any(would_pass_zeros(self._tolerance_of(call, part), output) for output, part in pairs):
            # Compare with the reference in the call's own types to estimate its noise.
            with contextlib.suppress(Refused):
                lossy = self._run_in_own_types(call, tensors)[0]
        truths = []
        for (name, output), part in zip(right.items(), call.outputs, strict=True):
            reference = self._to_canonical_form(output.to(torch.float64, copy=True), call)
            names = self.signature.outputs.get(part.name, only_output_dimensions(self.signature)).split()
            if len(names) != reference.dim() or "..." in names:
                names = [f"axis_{n}" for n in range(reference.dim())]
            formed = self._to_canonical_form(lossy[name], call) if name in lossy else None
            right_output = truth.make_truth(part, names, reference, formed, self._tolerance_of(call, part))
            if right_output.is_integer and native is not None:
                right_output = replace(right_output, own_type_output=native[name].double())
            truths.append(right_output)
        if request.is_run_twice:
            self._check_determinism(call, tensors, native, truths)
        if not self.checker_decides:
            notes = (*notes, *(each.tightening_note for each in truths if each.tightening_note))
        kept = expected if self.functions.checker else None
        return Answer(replace(inputs, call=call), truths, native is not None, kept, notes)

    def _check_determinism(
        self, call: Call, tensors: list[Tensor], native: dict[str, Tensor] | None, truths: list[Truth]
    ) -> None:
        """Raise Refused if a second run differs; own types are cheaper, so preferred."""
        if native is None:
            first = [each.reference for each in truths]
            outputs, _ = self._run_in_float64(call, tensors, None, advances_random=True)
            again = [self._to_canonical_form(output.double(), call) for output in outputs.values()]
        else:
            first, again = (
                [*native.values()],
                [*self._run_in_own_types(call, tensors, advances_random=True)[0].values()],
            )
        if not all(map(truth.answers_agree, first, again)):
            raise Refused(f"the reference is not deterministic: two answers to {call.key} differ")

    def _run_in_own_types(
        self, call: Call, tensors: list[Tensor], *, advances_random: bool = False
    ) -> tuple[dict[str, Tensor], Any]:
        """Run the reference in the call's own types; return outputs by name and the raw result."""
        outputs, result = self.functions.compute_outputs(
            "reference", self.reference, tensors, call, exact=False, advances_random=advances_random
        )
        # Copies, because the reference may reuse its output buffers.
        return {name: t.clone() if isinstance(t, Tensor) else t for name, t in outputs.items()}, result

    def _with_output_files(self, call: Call, native: dict[str, Tensor]) -> Call:
        """Add the outputs that the reference returned to a call whose signature names none."""
        if not native:
            raise Refused(f"the reference on {call.key}: it gives no tensor")
        for name, tensor in native.items():
            if tensor.dtype not in DTYPE_NAMES:
                raise Refused(f"the reference on {call.key}: {name} is of {tensor.dtype}, which is not supported")
        path, updates = call.output.path, self.signature.updates
        files = [TensorFile(name, path, tuple(t.shape), DTYPE_NAMES[t.dtype]) for name, t in native.items()]
        block, parts = place_in_block(files, path)
        if len(parts) == 1 and not updates:
            return call.replace(output=files[0], parts=())
        places = [tensor.name for tensor in call.inputs]
        numbers = tuple(places.index(updates[part.name]) if part.name in updates else -1 for part in parts)
        return call.replace(output=block, parts=parts, updates=numbers if updates else ())

    def _run_in_float64(
        self, call: Call, tensors: list[Tensor], native: dict[str, Tensor] | None, *, advances_random: bool = False
    ) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """Compute the outputs in float64, with notes on where float64 was impossible."""
        try:
            right, _ = self.functions.compute_outputs(
                "reference", self.reference, tensors, call, exact=True, advances_random=advances_random
            )
        except Refused as refused:
            with contextlib.suppress(Refused):
                native = native or self._run_in_own_types(call, tensors, advances_random=advances_random)[0]
            if native is None:
                raise
            why = str(refused).partition(": ")[2]
            return native, (f"the reference in float64: it runs in its own types alone ({why})",)
        notes = []
        for (name, tensor), part in zip(right.items(), call.outputs, strict=True):
            kind = torch.float64 if is_floating(part.dtype) else TORCH_DTYPES[part.dtype]
            try:
                check_result(tensor, part.shape, kind if native is None else tensor.dtype)
            except Refused as wrong:
                raise Refused(f"the reference on {call.key}: {wrong}") from wrong
            if tensor.dtype != kind and tensor.is_floating_point():
                notes.append(f"the reference in float64: it rounds {name} to {DTYPE_NAMES[tensor.dtype]}")
        return right, tuple(notes)

    def _tolerance_of(self, call: Call, part: TensorFile) -> Tolerance:
        """The tolerance of an output: by the workload's type if all share it, else by its own."""
        mixed = call.structure or call.parts or not is_floating(part.dtype)
        chosen = self.tolerance_by_dtype.get(part.dtype) if mixed else None
        if chosen is None and not is_floating(part.dtype):
            return Tolerance(atol=0.0, rtol=0.0)
        chosen = chosen or self.tolerance_by_dtype.get(call.dtype)
        if chosen is None:
            raise Refused(f"no tolerance for {part.name} of {part.dtype}: `tolerance` of target.yaml has none")
        return chosen

    def compare(self, request: judge_messages.Compare) -> Finding:
        """Compare the output files of a call with the right answer; return the worst finding."""
        answer = self.answer_by_key[request.call.key]
        try:
            return self._compare_files(request, answer)
        except torch.OutOfMemoryError:  # Keep this answer on the CPU for later comparisons.
            self.answer_by_key[request.call.key] = answer = answer.copy_to("cpu")
            return self._compare_files(request, answer)

    def _compare_files(self, request: judge_messages.Compare, answer: Answer) -> Finding:
        """Compare output files with the answer, by tolerance and by the task's own checker."""
        call, blocks = answer.inputs.call, []
        for path in request.output_files:
            block = torch_side.read_tensor(call.output, path)  # Refused when it has another size.
            blocks.append([view_output(block, part) for part in call.parts] if call.parts else [block])
        if self.checker_decides:
            worst = Finding(0.0, None, 0, sum(map(Tensor.numel, blocks[0])))
        else:
            findings = [
                self._compare_output(answer, n, [block[n] for block in blocks], request.tries_faults)
                for n in range(len(answer.truths))
            ]
            worst = max(findings, key=lambda finding: finding.badness)
        checks = blocks if self.functions.checker else []
        complaints = [self.functions.run_checker(answer.inputs, answer.raw_result, block) for block in checks]
        before = None if self.checker_decides else self.answer_by_key.get(request.earlier_key)
        unmoved = truth.distance_in_roundings(answer.truths, before.truths) if before else 0.0
        return worst.replace(checker=next(filter(None, complaints), ""), answer_distance=unmoved)

    def _compare_output(self, answer: Answer, n: int, own: list[Tensor], suspected: bool) -> Finding:
        """Compare several results for output number `n`; return the worst finding."""
        inputs, right = answer.inputs, answer.truths[n]
        outputs = [self._to_canonical_form(output.to(right.reference.device), inputs.call) for output in own]
        worst = self._worst_finding(right, outputs)
        # A tolerance of zero asks for the exact answer.
        may_round = (
            not right.allows_input_rounding
            and not right.is_integer
            and (right.tolerance.atol or right.tolerance.rtol)
        )
        if may_round and worst.badness[:2] != (0, False) and truth.rounding_may_explain(right, outputs):
            right = answer.truths[n] = self._allow_input_rounding(answer, n)
            worst = self._worst_finding(right, outputs)
        if worst.wrong and not right.is_integer:  # The reference's own rounding or overflow may explain them.
            for output in outputs:
                right = answer.truths[n] = self._allow_reference_noise(inputs, right, n, output)
            wrong = [output for output in outputs if bool(right.mask_wrong(output).any())]
            why = [self._explain_overflow(inputs, right, n, output) for output in wrong]
            worst = self._worst_finding(right, outputs).replace(unjudged_reason=why[0] if why and all(why) else "")
        if worst.wrong:
            wrong = [output for output in outputs if right.mask_wrong(output).any()]
            worst = worst.replace(
                has_only_ties=all(truth.are_only_ties(inputs.tensors, right, output) for output in wrong)
            )
            if suspected:
                worst = worst.replace(fits=self._fitting_faults(inputs, right, n, outputs))
        return worst.replace(output=right.file.name) if len(answer.truths) > 1 else worst

    def _worst_finding(self, right: Truth, outputs: list[Tensor]) -> Finding:
        """The worst finding of several results for one output."""
        bounded = self.plain is not None
        findings = (
            truth.compare_output(right.tighten_for(output), output, limits_by_plain=bounded) for output in outputs
        )
        return max(findings, key=lambda finding: finding.badness)

    def _allow_input_rounding(self, answer: Answer, n: int) -> Truth:
        """Widen output `n`'s allowed error by what any sound summation and exponential may lose.

        `tail` of the result counts elements that may err further: those explained by rounded inputs, and those
        by which the reference errs in the call's own types. That run stands in for `plain` where there is none.
        """
        inputs, right = answer.inputs, answer.truths[n]
        call, sizes = inputs.call, self.functions.dimension_sizes(inputs.call)
        if self.functions.has_plain_signature(call) and sizes and not has_unknown_outputs(self.signature):
            # Terms an element may sum: over dimensions missing in the output, or along one of its own.
            kept = only_output_dimensions(self.signature).split()
            summed = math.prod(size for name, size in sizes.items() if name not in kept)
            terms = max([summed, *(sizes[name] for name in kept)])
        else:
            terms = max((size for tensor in call.inputs for size in tensor.shape), default=1)
        dtype = right.file.dtype if call.structure else call.dtype
        exact = partial(self._exact_output, call, n)
        try:
            each, largest, mean = truth.measure_input_rounding(exact, inputs.tensors, right.reference, dtype)
        except Refused:  # Without float64 the condition of the function is unknown.
            return replace(right, allows_input_rounding=True, explained_counts=None)
        factor = truth.allowed_roundings(dtype, terms)
        each = each.mul_(factor)  # In place: the tensor may have gigabytes.
        tail = truth.count_by_magnitude(each[each > 0])
        plain_error = 0.0 if self.plain else MAX_SLACK * right.plain_max
        own = None if self.plain or answer.ran_in_own_types else self._output_in_own_type(inputs, right, n)
        if own is not None:
            plain_error = MAX_SLACK * truth.largest_and_mean_error(own, right.reference)[0]
            tail += truth.count_errors_beyond(right.tolerance, right.reference, own, MAX_SLACK)
        if right.explained_counts is not None:
            tail += right.explained_counts
        largest = min(max(largest * factor, plain_error), IMPLAUSIBLE * truth.largest_magnitude(right.reference))
        most = (max(right.error_limits[0], largest), max(right.error_limits[1], mean * factor))
        return replace(
            right,
            allows_input_rounding=True,
            error_limits=most,
            allowed=right.allowed.clamp(min=largest),
            explained_counts=tail,
        )

    def _allow_reference_noise(self, inputs: Inputs, right: Truth, n: int, output: Tensor) -> Truth:
        """Allow more where float64 rounding of the reference itself may explain a wrong element.

        float64's error of an element is estimated by how far the element moves when inputs change
        by a few float64 roundings. Example: an exact zero that is the difference of large numbers.
        """
        scale = max(map(truth.largest_magnitude, [right.reference, *inputs.tensors]))
        error = (output.double() - right.reference).abs()
        wrong = truth.mask_outside(output, right.reference, right.allowed)
        if not bool((wrong & (error <= MAX_NOISE_SHARE * scale)).any()):
            return right
        most = torch.zeros_like(right.reference)
        try:
            for seed in range(NOISE_DRAWS):
                near = [
                    t.double() * (1 + NOISE_STEP * truth.random_signs(t, seed)) if t.is_floating_point() else t
                    for t in inputs.tensors
                ]
                distance = (self._exact_output(inputs.call, n, near) - right.reference).abs()
                most = torch.maximum(most, distance.where(distance.isfinite(), 0.0))
        except Refused:
            return right
        return replace(
            right, allowed=torch.maximum(right.allowed, (NOISE_SLACK * most).clamp(max=MAX_NOISE_SHARE * scale))
        )

    def _explain_overflow(self, inputs: Inputs, right: Truth, n: int, output: Tensor) -> str:
        """Why the wrong elements prove nothing; empty if they do prove an error. They prove nothing
        if the reference overflows in the call's own type to the same values."""
        wrong = truth.mask_outside(output, right.reference, right.allowed)
        own = self._output_in_own_type(inputs, right, n) if bool((wrong & ~output.isfinite()).any()) else None
        if own is None or not bool(truth.mask_overflow(own, right.reference).any()):
            return ""
        alike = ~output.isfinite() & ~own.isfinite() | ((output.double() - own).abs() <= right.allowed)
        reason = truth.OVERFLOW.format(whose="the reference", dtype=right.file.dtype)
        return "" if bool((wrong & ~alike).any()) else reason

    def _output_in_own_type(self, inputs: Inputs, right: Truth, n: int) -> Tensor | None:
        """Output `n` of the reference in the inputs' own types; None without one of that shape."""
        try:
            output = self._exact_output(inputs.call, n, inputs.tensors, exact=False)
        except Refused:
            return None
        return output if output.shape == right.reference.shape else None

    def _exact_output(self, call: Call, n: int, tensors: Sequence[Tensor], *, exact: bool = True) -> Tensor:
        """Run the reference; return output `n` in the form of comparison. `exact`: in float64."""
        outputs, _ = self.functions.compute_outputs("reference", self.reference, tensors, call, exact=exact)
        return self._to_canonical_form(list(outputs.values())[n].double(), call)

    def _fitting_faults(
        self, inputs: Inputs, right: Truth, n: int, outputs: list[Tensor]
    ) -> dict[str, bool] | None:
        """Known faults that explain the wrong results for one output, as `Finding.fits`."""
        held, rtol = [], right.tolerance.rtol
        for output in map(Tensor.double, outputs):
            wrong = truth.mask_outside(output, right.reference, right.tighten_for(output).allowed)
            if bool(wrong.any()):
                held.append(suspects.WrongOutput(right.reference, right.allowed, rtol, output, wrong))

        def reference(tensors: Sequence[Tensor], call: Call) -> Tensor:
            return self._exact_output(call, n, tensors)

        call, tensors, plain = inputs.call, inputs.tensors, self.functions.has_plain_signature(inputs.call)
        faults = suspects.load_faults(self.functions.terms.faults) if plain else []
        exact = [tensor.double() for tensor in tensors]
        own = [
            (words, partial(self.functions.call_function, "fault", fault, exact, call)) for words, fault in faults
        ]
        of_call = suspects.suspects_of_call(
            reference, call, tensors, self.signature, right.reference, has_plain_signature=plain
        )
        results = suspects.suspects_of_result(right.reference, is_integer=right.is_integer)
        fits = suspects.find_fitting_suspects(held, itertools.chain(own, of_call, results))
        return suspects.find_fitting_suspects(held, held[0].find_factor()) if fits == {} else fits

    def _to_canonical_form(self, output: Tensor, call: Call) -> Tensor:
        """Apply the component's `form`, if any, which makes equivalent outputs equal."""
        return (
            output
            if self.canonical_form is None
            else self.functions.call_function("form", self.canonical_form, [output.double()], call)
        )
