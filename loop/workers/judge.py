"""The judge: makes inputs, computes right answers, compares outputs. It never loads a candidate.

Below are properties: relations between outputs, which need no reference. A property is a generator
function. It takes a workload's inputs as float64 tensors (rounded to the element type) and its
attributes by keyword. It yields calls, `(inputs, attributes)`, and receives the variant's outputs
in float64. It returns `(got, expected)`, which must agree; None: it does not apply."""

import contextlib
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.calls import callee
from loop.calls.call import Call, Refused, TensorFile, place_outputs
from loop.calls.callee import DTYPE_NAMES, TORCH_DTYPES, check_result
from loop.calls.own_modules import describe_error
from loop.model.dtypes import is_floating
from loop.model.measurement import Weaknesses
from loop.model.target import Signature, Tolerance
from loop.workers import judge_messages, suspects, truth
from loop.workers.judge_messages import AdvanceProperty, Finding, PrepareAnswer
from loop.workers.suspects import DrawnInputs, find_unread
from loop.workers.target_functions import Inputs, TargetFunctions
from loop.workers.truth import MAX_SLACK, Truth, largest_finite_magnitude, would_pass_zeros
from loop.workers.workload_call import attribute_numbers, find_updated_input

NOISE_DRAWS, NOISE_STEP, NOISE_SLACK = 8, 2.0**-51, 4.0
"""Number of changes of inputs, their size (two roundings), and the slack on their effect."""
REFERENCE_BYTES_PER_ELEMENT = 64  # Memory to reserve per input element: seven float64 tensors.
MAX_NOISE_SHARE = 1e-9  # Smaller errors, as a share of the largest value, may be float64's own.
RequestedCall = tuple[list[Tensor], dict[str, Any]]  # Inputs and attributes of a call.
Property = Generator[RequestedCall, Tensor, tuple[Tensor, Tensor] | None]
"""A running property: yields calls, receives outputs, returns two tensors that must agree."""
PLAIN_ERROR_FACTOR = 2.0  # A property may be violated by this many times the error of `plain`.
MAX_ROUNDING_SHARE = 0.1  # Rounding errors stay below this share of the largest value.


@dataclass
class Answer:
    """The right answer to a call."""

    inputs: Inputs
    truths: list[Truth]  # One for each output.
    ran_in_own_types: bool = False  # Whether the reference also ran in the call's own types.
    raw_result: Any = None  # Raw result of that run, for the task's own checker; None without one.
    notes: tuple[str, ...] = ()  # What the inputs or the reference could not test.


class Judge:
    """Stores the right answer of every call that the session asked it to expect."""

    def __init__(self, terms: judge_messages.SetTarget) -> None:
        callee.use_threads(terms.threads)
        self.functions = TargetFunctions(terms)
        self.plain = self.functions.plain
        target = terms.target
        self.signature = target.signature
        self.tolerance_by_dtype: dict[str, Tolerance] = dict(target.tolerance.items())
        self.checker_decides = bool(target.checker and target.checker.alone)  # Not a tolerance.
        self.answer_by_key: dict[str, Answer] = {}  # Key of a call to its right answer.
        self.drawn_inputs = DrawnInputs()
        runner = PropertyRunner(self.signature, self.tolerance_by_dtype, self.plain)
        self.answers: dict[type, Callable[[Any], object]] = {
            PrepareAnswer: self.prepare_answer,
            judge_messages.DiscardAnswer: self.discard_answer,
            judge_messages.Compare: self.compare,
            judge_messages.FindBlindSpots: self.find_blind_spots,
            judge_messages.AdvanceProperty: runner.advance,
        }

    def discard_answer(self, request: judge_messages.DiscardAnswer) -> None:
        """Forget the answer to a call."""
        self.answer_by_key.pop(request.key, None)

    def find_blind_spots(self, request: judge_messages.FindBlindSpots) -> Weaknesses:
        """Report what the inputs drawn so far cannot reveal. If the request has a pair of calls (a
        workload under two seeds), also change inputs to find those that the reference ignores."""
        weaknesses = self.drawn_inputs.summarise()
        with contextlib.suppress(Refused, RuntimeError):  # It may need the judging device.
            if request.pair:
                inputs, other_inputs = map(self.functions.make_inputs, request.pair)
                weaknesses |= find_unread(self.functions, inputs, other_inputs.tensors)
        return weaknesses

    def prepare_answer(self, request: PrepareAnswer) -> judge_messages.PreparedAnswer:
        """Write the inputs of a call to their files and compute its right answer."""
        inputs = self.functions.make_inputs(request)
        self.drawn_inputs.record(inputs)
        device = request.device
        if device == "cuda":  # The reference runs there only if half of the free memory is enough.
            free_bytes, _ = torch.cuda.mem_get_info()
            estimated_bytes = REFERENCE_BYTES_PER_ELEMENT * sum(map(Tensor.numel, inputs.tensors))
            if max(request.reference_bytes, estimated_bytes) >= free_bytes / 2:
                device = "cpu"
        try:
            answer = self._compute_answer(inputs.copy_to(device), request)
        except (Refused, RuntimeError):  # It may support only the CPU, or need too much memory.
            if device == "cpu":
                raise
            answer = self._compute_answer(inputs, request)
        self.answer_by_key[request.call.key] = answer
        floating = [output for output in answer.truths if not output.is_integer]
        doubt = unjudged_reason = ""
        if self.plain or answer.ran_in_own_types:
            doubt = next(filter(None, map(truth.explain_doubt, floating)), "")
        if not self.checker_decides:
            function_name = "`plain`" if self.plain else "the reference"
            reasons = [truth.explain_unjudged(output, function_name) for output in floating]
            unjudged_reason = next(filter(None, reasons), "")
        has_new_call = self.signature.has_unknown_outputs or self.functions.generator is not None
        new_call = answer.inputs.call if has_new_call else None
        notes = (*inputs.notes, *answer.notes)
        passes_zeros = bool(floating) and not self.checker_decides
        for right in answer.truths if passes_zeros else ():  # It cannot show unwritten results.
            if not would_pass_zeros(right.tolerance, right.reference):
                passes_zeros = False
                break
            zeros = torch.zeros_like(right.reference, dtype=TORCH_DTYPES[right.file.dtype])
            passes_zeros &= self._find_worst(right, [zeros]).passes
        return judge_messages.PreparedAnswer(doubt, new_call, notes, unjudged_reason, passes_zeros)

    def _compute_answer(self, inputs: Inputs, request: PrepareAnswer) -> Answer:
        """Compute the right answer of a call. Raises Refused if two requested runs of it differ."""
        call, tensors = inputs.call, inputs.tensors
        own_type_outputs, raw_result = None, None
        run_reference = partial(self.functions.compute_outputs, "reference", tensors)
        is_mixed = call.structure or call.several_outputs or not is_floating(call.output.dtype)
        if self.signature.has_unknown_outputs or is_mixed:  # Other types than the call's.
            own_type_outputs, raw_result = run_reference(call, exact=False)
        # `rounded_outputs` show what rounding loses: `plain`, else the reference in its own types.
        rounded_outputs = own_type_outputs or {}
        if self.plain is not None:
            rounded_outputs, _ = self.functions.compute_outputs("plain", tensors, call, exact=False)
        if self.signature.has_unknown_outputs and own_type_outputs is not None:
            call = self._with_output_files(call, own_type_outputs)
        exact_outputs, notes = self._run_in_float64(call, tensors, own_type_outputs)
        tolerances = [self._tolerance_of(call, file) for file in call.outputs]
        if not rounded_outputs and any(map(would_pass_zeros, tolerances, exact_outputs.values())):
            # Noise of the reference decides whether the tolerance can be tightened.
            with contextlib.suppress(Refused):
                rounded_outputs, _ = run_reference(call, exact=False)
        truths = []
        columns = exact_outputs.items(), call.outputs, tolerances
        for (name, output), file, tolerance in zip(*columns, strict=True):
            reference = self._to_canonical_form(output.double(), call)
            dimensions = self.signature.outputs.get(file.name, self.signature.output_dimensions)
            dimension_names = dimensions.split()
            if len(dimension_names) != reference.dim() or "..." in dimension_names:
                dimension_names = [f"axis_{n}" for n in range(reference.dim())]
            rounded = None
            if name in rounded_outputs:
                rounded = self._to_canonical_form(rounded_outputs[name], call)
            right = truth.make_truth(file, dimension_names, reference, rounded, tolerance)
            if right.is_integer and own_type_outputs is not None:
                right = replace(right, own_type_output=own_type_outputs[name].double())
            truths.append(right)
            if right.stated_allowed is not None and not self.checker_decides:
                atol = f"zeros would be right by it; {right.tolerance.atol:.2g} is allowed"
                notes = (*notes, f"the stated atol of output {file.name}: {atol}")
        if request.checks_determinism:  # In the call's own types if it ran so: that is cheaper.
            if own_type_outputs is None:
                first = [right.reference for right in truths]
                outputs, _ = self._run_in_float64(call, tensors, None)
                doubles = map(Tensor.double, outputs.values())
                second = [self._to_canonical_form(output, call) for output in doubles]
            else:
                first = list(own_type_outputs.values())
                second = list(run_reference(call, exact=False)[0].values())
            if not all(map(truth.answers_agree, first, second)):
                difference = f"two answers to {call.key} differ"
                raise Refused(f"the reference is not deterministic: {difference}")
        inputs = replace(inputs, call=call)
        raw_result = raw_result if self.functions.checker else None
        return Answer(inputs, truths, own_type_outputs is not None, raw_result, notes)

    def _with_output_files(self, call: Call, outputs: dict[str, Tensor]) -> Call:
        """Add the outputs that the reference returned to a call whose signature names none."""
        place = f"the reference on {call.key}"
        path, files = call.output.path, []
        if not outputs:
            raise Refused(f"{place}: it gives no tensor")
        for name, tensor in outputs.items():
            if tensor.dtype not in DTYPE_NAMES:
                raise Refused(f"{place}: {name} is of {tensor.dtype}, which is not supported")
            file = TensorFile(name, path, tuple(tensor.shape), DTYPE_NAMES[tensor.dtype])
            files.append(file.replace(updated_input=find_updated_input(self.signature, name)))
        output, parts = place_outputs(files, path)
        return call.replace(output=output, several_outputs=parts)

    def _run_in_float64(
        self, call: Call, tensors: list[Tensor], own_type_outputs: dict[str, Tensor] | None
    ) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """Compute the outputs in float64, with notes on where that fails or rounds: there they are
        `own_type_outputs` (None: not computed yet). Raises Refused if every type fails."""
        run_reference = partial(self.functions.compute_outputs, "reference", tensors, call)
        try:
            outputs, _ = run_reference(exact=True)
        except Refused as refused:
            with contextlib.suppress(Refused):
                if not own_type_outputs:
                    own_type_outputs, _ = run_reference(exact=False)
            if own_type_outputs is None:
                raise
            reason = str(refused).partition(": ")[2]  # Without "the reference on ...".
            note = f"the reference in float64: it runs in its own types alone ({reason})"
            return own_type_outputs, (note,)
        notes = []
        for (name, output), file in zip(outputs.items(), call.outputs, strict=True):
            expected = torch.float64 if is_floating(file.dtype) else TORCH_DTYPES[file.dtype]
            try:
                dtype = expected if own_type_outputs is None else output.dtype
                check_result(output, file.shape, dtype)
            except Refused as refused:
                raise Refused(f"the reference on {call.key}: {refused}") from refused
            if output.dtype != expected and output.is_floating_point():
                rounding = f"it rounds {name} to {DTYPE_NAMES[output.dtype]}"
                notes.append(f"the reference in float64: {rounding}")
        return outputs, tuple(notes)

    def _tolerance_of(self, call: Call, file: TensorFile) -> Tolerance:
        """The tolerance of an output: by its own type if all inputs have it, or if types may
        differ; else by the workload's. Integers without a tolerance have to be equal."""
        tolerance = None
        floats = {tensor.dtype for tensor in call.inputs if is_floating(tensor.dtype)}
        may_have_own_type = call.structure or call.several_outputs or not is_floating(file.dtype)
        if may_have_own_type or floats == {file.dtype}:
            tolerance = self.tolerance_by_dtype.get(file.dtype)
        if tolerance is None and not is_floating(file.dtype):
            return Tolerance(atol=0.0, rtol=0.0)
        tolerance = tolerance or self.tolerance_by_dtype.get(call.dtype)
        if tolerance is None:
            expected = f"`tolerance` of target.yaml needs one for {file.dtype}"
            raise Refused(f"no tolerance for {file.name}: {expected}")
        return tolerance

    def compare(self, request: judge_messages.Compare) -> Finding:
        """Compare outputs with the right answer; if the GPU lacks memory, on the CPU from then."""
        answer = self.answer_by_key[request.call.key]
        try:
            return self._compare_files(request, answer)
        except torch.OutOfMemoryError:
            truths = [right.copy_to("cpu") for right in answer.truths]
            answer = replace(answer, inputs=answer.inputs.copy_to("cpu"), truths=truths)
            self.answer_by_key[request.call.key] = answer
            return self._compare_files(request, answer)

    def _compare_files(self, request: judge_messages.Compare, answer: Answer) -> Finding:
        """Compare output files with the answer, by tolerance and by the task's own checker, with
        each other, and the answer with that of an earlier call if the request names one."""
        call, outputs_of_files = answer.inputs.call, []
        for path in request.output_files:
            block = callee.read_tensor(call.output, path)  # Refused when it has another size.
            outputs = []
            for part in call.several_outputs:
                part_bytes = block[part.offset : part.offset + part.nbytes]
                outputs.append(part_bytes.view(TORCH_DTYPES[part.dtype]).reshape(part.shape))
            outputs_of_files.append(outputs or [block])
        if self.checker_decides:
            total = sum(map(Tensor.numel, outputs_of_files[0]))
            worst = Finding(max_error=0.0, total=total)
        else:
            compare = partial(self._compare_output, answer, tries_faults=request.tries_faults)
            results_by_output = enumerate(zip(*outputs_of_files, strict=True))
            findings = [compare(index, results) for index, results in results_by_output]
            worst = max(findings, key=lambda finding: finding.badness)
        first, *others = outputs_of_files
        agree = (all(map(truth.answers_agree, first, outputs)) for outputs in others)
        update: dict[str, Any] = {"outputs_agree": all(agree)}
        if self.functions.checker:
            run_checker = partial(self.functions.run_checker, answer.inputs, answer.raw_result)
            update["checker"] = next(filter(None, map(run_checker, outputs_of_files)), "")
        earlier = self.answer_by_key.get(request.earlier_key)
        if earlier and not self.checker_decides:
            update["answer_distance"] = truth.distance_in_roundings(answer.truths, earlier.truths)
        return worst.model_copy(update=update)

    def _compare_output(
        self, answer: Answer, index: int, results: Sequence[Tensor], *, tries_faults: bool
    ) -> Finding:
        """Compare results for output number `index`; return the worst finding. Widens the answer's
        limits where rounding may explain a wrong result: too expensive for every call."""
        inputs, right = answer.inputs, answer.truths[index]
        device = right.reference.device
        outputs = [self._to_canonical_form(result.to(device), inputs.call) for result in results]
        worst = self._find_worst(right, outputs)
        update: dict[str, Any] = {"output": right.file.name} if len(answer.truths) > 1 else {}
        is_rounded = not right.is_integer
        must_be_equal = not (right.tolerance.atol or right.tolerance.rtol)
        may_widen = is_rounded and not right.allows_input_rounding and not must_be_equal
        if may_widen and not worst.passes and truth.rounding_may_explain(right, outputs):
            right = answer.truths[index] = self._allow_input_rounding(answer, index)
            worst = self._find_worst(right, outputs)
        if worst.wrong and is_rounded:  # The reference's own rounding may explain them.
            for output in outputs:
                right = answer.truths[index] = self._allow_noise(inputs, right, index, output)
            worst = self._find_worst(right, outputs)
        if worst.wrong:
            if is_rounded:
                explain = partial(self._explain_overflow, inputs, right, index)
                wrong_outputs = [output for output in outputs if right.mask_wrong(output).any()]
                reasons = [explain(output) for output in wrong_outputs]
                update["unjudged_reason"] = reasons[0] if reasons and all(reasons) else ""
            if tries_faults:
                update["fits"] = self._find_fitting_faults(inputs, right, index, outputs)
        return worst.model_copy(update=update)

    def _find_worst(self, right: Truth, results: list[Tensor]) -> Finding:  # For one output.
        compare = partial(truth.compare_output, right, limits_by_plain=self.plain is not None)
        return max(map(compare, results), key=lambda finding: finding.badness)

    def _allow_input_rounding(self, answer: Answer, index: int) -> Truth:
        """Widen the allowed error of output `index` by what a sound summation and exp may lose.
        Only without `plain` it also counts the reference's error in the call's own types."""
        inputs, right = answer.inputs, answer.truths[index]
        call, sizes = inputs.call, self.functions.dimension_sizes(inputs.call)
        is_named = bool(sizes) and not self.signature.has_unknown_outputs
        if is_named and self.functions.has_plain_signature(call):
            # Terms an element may sum: over dimensions that the output lacks, or along its own.
            output_names = self.signature.output_dimensions.split()
            summed_sizes = [size for name, size in sizes.items() if name not in output_names]
            summed_terms = max([math.prod(summed_sizes), *(sizes[name] for name in output_names)])
        else:
            summed_terms = max((size for tensor in call.inputs for size in tensor.shape), default=1)
        dtype = right.file.dtype if call.structure else call.dtype
        recompute = partial(self._compute_output, index, call=call)
        try:
            errors, largest_rounding, mean_rounding = truth.measure_input_rounding(
                recompute, inputs.tensors, right.reference, dtype, summed_terms
            )
        except Refused:  # Without float64 the condition of the function is unknown.
            return replace(right, allows_input_rounding=True, explained_counts=None)
        counts = truth.count_by_magnitude(errors[errors > 0])
        reference_error = 0.0 if self.plain else MAX_SLACK * right.plain_max
        if not self.plain and not answer.ran_in_own_types:
            output = self._compute_own_type_output(inputs, right, index)
            if output is not None:
                error, _ = truth.largest_and_mean_error(output, right.reference)
                reference_error = MAX_SLACK * error
                tolerance, reference = right.tolerance, right.reference
                counts += truth.count_errors_beyond(tolerance, reference, output, MAX_SLACK)
        if right.explained_counts is not None:
            counts += right.explained_counts
        plausible_error = truth.IMPLAUSIBLE_SHARE * largest_finite_magnitude(right.reference)
        largest_error = min(max(largest_rounding, reference_error), plausible_error)
        largest_limit, mean_limit = right.error_limits
        return replace(
            right,
            allows_input_rounding=True,
            error_limits=(max(largest_limit, largest_error), max(mean_limit, mean_rounding)),
            allowed=right.allowed.clamp(min=largest_error),
            explained_counts=counts,
        )

    def _allow_noise(self, inputs: Inputs, right: Truth, index: int, output: Tensor) -> Truth:
        """Allow more where the reference's own float64 rounding may explain a wrong element: say, a
        zero that is a difference of large numbers. Inputs changed a little show how much."""
        scale = max(map(largest_finite_magnitude, [right.reference, *inputs.tensors]))
        error = (output.double() - right.reference).abs()
        wrong = truth.mask_outside(output, right.reference, right.allowed)
        if not bool((wrong & (error <= MAX_NOISE_SHARE * scale)).any()):
            return right
        noise = torch.zeros_like(right.reference)
        try:
            for seed in range(NOISE_DRAWS):
                changed = []
                for tensor in inputs.tensors:
                    if tensor.is_floating_point():
                        signs = truth.random_signs(tensor, seed)
                        tensor = tensor.double() * (1 + NOISE_STEP * signs)
                    changed.append(tensor)
                shift = (self._compute_output(index, changed, inputs.call) - right.reference).abs()
                noise = torch.maximum(noise, shift.where(shift.isfinite(), 0.0))
        except Refused:
            return right
        allowed = (NOISE_SLACK * noise).clamp(max=MAX_NOISE_SHARE * scale)
        return replace(right, allowed=torch.maximum(right.allowed, allowed))

    def _explain_overflow(self, inputs: Inputs, right: Truth, index: int, output: Tensor) -> str:
        """Why the wrong elements prove nothing; empty if they prove an error. They prove nothing if
        the reference gives them in the call's own type, too, some of them NaN or infinite."""
        wrong = truth.mask_outside(output, right.reference, right.allowed)
        if not bool((wrong & ~output.isfinite()).any()):
            return ""
        rounded = self._compute_own_type_output(inputs, right, index)
        if rounded is None or not bool((right.reference.isfinite() & ~rounded.isfinite()).any()):
            return ""
        overflows_too = ~output.isfinite() & ~rounded.isfinite()
        is_near = (output.double() - rounded).abs() <= right.allowed
        if bool((wrong & ~(overflows_too | is_near)).any()):
            return ""
        return truth.OVERFLOW.format(whose="the reference", dtype=right.file.dtype)

    def _compute_own_type_output(self, inputs: Inputs, right: Truth, index: int) -> Tensor | None:
        """Output `index` of the reference in its own types; None if refused or of another shape."""
        try:
            output = self._compute_output(index, inputs.tensors, inputs.call, exact=False)
        except Refused:
            return None
        return output if output.shape == right.reference.shape else None

    def _compute_output(
        self, index: int, tensors: Sequence[Tensor], call: Call, *, exact: bool = True
    ) -> Tensor:
        """Output `index` of the reference on `tensors`, in canonical form; `exact`: by float64."""
        outputs, _ = self.functions.compute_outputs("reference", tensors, call, exact=exact)
        return self._to_canonical_form(list(outputs.values())[index].double(), call)

    def _find_fitting_faults(
        self, inputs: Inputs, right: Truth, index: int, outputs: list[Tensor]
    ) -> dict[str, bool] | None:
        """Known faults that explain the wrong results for output `index`, as in `Finding.fits`."""
        wrong_outputs, rtol = [], right.tolerance.rtol
        for output in map(Tensor.double, outputs):
            wrong = truth.mask_outside(output, right.reference, right.tighten_for(output).allowed)
            if bool(wrong.any()):
                terms = right.reference, right.allowed, rtol, output, wrong
                wrong_outputs.append(suspects.WrongOutput(*terms))
        call, tensors = inputs.call, inputs.tensors
        is_plain = self.functions.has_plain_signature(call)
        own_suspects: list[suspects.Suspect] = []
        if is_plain:
            exact = [tensor.double() for tensor in tensors]
            for description, fault in self.functions.faults.items():
                answer = partial(self.functions.call_function, "fault", fault, exact, call)
                own_suspects.append((description, answer))
        kind = {"has_plain_signature": is_plain, "is_integer": right.is_integer}
        run = partial(self._compute_output, index)
        reference = right.reference
        general = suspects.find_suspects(run, call, tensors, self.signature, reference, **kind)
        every_suspect = itertools.chain(own_suspects, general)
        return suspects.find_fitting_suspects(wrong_outputs, every_suspect)

    def _to_canonical_form(self, output: Tensor, call: Call) -> Tensor:
        """Apply the component's `form` function, if any: equally right outputs become equal."""
        if output.is_floating_point() and output.element_size() == 1:  # float8 lacks functions.
            output = output.half()
        function = self.functions.canonical_form
        if function is None:
            return output
        canonical: Tensor = self.functions.call_function("form", function, [output.double()], call)
        return canonical


class PropertyRunner:
    """Runs one property at a time; the variant computes outputs in its own process."""

    def __init__(
        self, signature: Signature, tolerance: dict[str, Tolerance], plain: callee.Function | None
    ) -> None:
        """`tolerance`: by element type. `plain`: the plain implementation; None without one."""
        self.signature, self.tolerance_by_dtype, self.plain = signature, tolerance, plain
        self.plain_errors: dict[tuple[str, str], float] = {}
        """Error of the plain implementation by (property, call key): all variants share it."""
        self.running: Generator[Call, str, Finding | None]
        """The property that runs now: yields calls, receives the file of each output."""

    def advance(self, request: AdvanceProperty) -> Call | Finding | None:
        """Start a property or give it the requested output. Returns the next call to make; at the
        end its Finding, or None if it does not apply. Raises Refused if the property raises."""
        try:
            if request.output_file:
                return self.running.send(request.output_file)
            self.running = self._run(request)
            return next(self.running)
        except StopIteration as end:
            finding: Finding | None = end.value
            return finding
        except Refused:
            raise
        except Exception as error:
            place = f"property {request.property_name} on {request.call.key}"
            raise Refused(f"{place}: {describe_error(error)}") from error

    def _run(self, request: AdvanceProperty) -> Generator[Call, str, Finding | None]:
        """Run a property on a call's inputs. Yields calls for the variant to make, receives the
        path of each output's file, returns what was found; None if the property does not apply."""
        call, error_key = request.call, (request.property_name, request.call.key)
        inputs = [callee.read_tensor(tensor).double() for tensor in call.inputs]
        property_function = callee.find_function(request.property_name)
        start_property = partial(property_function, *inputs, **call.attributes)
        if self.plain is not None and error_key not in self.plain_errors:
            torch.manual_seed(request.seed)
            # On `plain` in place of the variant, once: its error widens the limit below.
            sides, _ = yield from self._drive(start_property(), call, self.plain)
            plain_error = largest_finite_magnitude(sides[0] - sides[1]) if sides else 0.0
            self.plain_errors[error_key] = plain_error
        torch.manual_seed(request.seed)  # Both draw the same values, if the property draws any.
        sides, call_count = yield from self._drive(start_property(), call, None)
        if sides is None:
            return None
        (got, expected), tolerance = sides, self.tolerance_by_dtype[call.dtype]
        allowed = call_count * (tolerance.atol + tolerance.rtol * expected.abs())
        plain_error = self.plain_errors.get(error_key, 0.0)
        # If rounding cannot explain the error of `plain`, the property is wrong: the limit stays.
        if plain_error <= MAX_ROUNDING_SHARE * largest_finite_magnitude(expected):
            allowed = allowed.clamp(min=PLAIN_ERROR_FACTOR * plain_error)
        error = (got - expected).abs()
        wrong, total = int((~(error <= allowed)).sum()), error.numel()
        largest = largest_allowed = 0.0
        if total:  # JSON has no infinity.
            largest = min(float(error.nan_to_num(torch.inf).max()), 1e300)
            largest_allowed = min(float(allowed.nan_to_num(0.0).max()), 1e300)
        return Finding(max_error=largest, allowed_error=largest_allowed, wrong=wrong, total=total)

    def _drive(
        self, running: Property, call: Call, plain: callee.Function | None
    ) -> Generator[Call, str, tuple[tuple[Tensor, Tensor] | None, int]]:
        """Run a property to its end on the function `plain`; None: on the variant, whose calls are
        yielded. Returns both sides (None if it does not apply), and the number of calls."""
        output: Any = None
        call_count = 0
        while True:
            try:
                inputs, attributes = running.send(output)
            except StopIteration as end:
                return end.value, call_count
            call_count += 1
            pairs = zip(inputs, call.inputs, strict=True)
            rounded = [tensor.to(TORCH_DTYPES[file.dtype]) for tensor, file in pairs]
            if plain is not None:
                output = plain(*rounded, **attributes).double()
                continue
            # The variant gets the inputs in files. Their dimensions give the output's shape.
            files, sizes = [], dict[str, int]()
            for tensor, file in zip(rounded, call.inputs, strict=True):
                path, shape = f"{file.path}.related", tuple(tensor.shape)
                sizes |= zip(self.signature.inputs[file.name].split(), shape, strict=True)
                Path(path).write_bytes(callee.bytes_of(tensor))
                files.append(file.replace(path=path, shape=shape, extra_elements=0, offset=0))
            shape = tuple(sizes[name] for name in self.signature.output_dimensions.split())
            output_file = call.output.replace(shape=shape, path=f"{call.output.path}.related")
            numbers = attribute_numbers(self.signature, attributes)
            on_files = call.replace(inputs=tuple(files), output=output_file)
            on_files = on_files.replace(attributes=attributes, numbers=numbers)
            output = callee.read_tensor(output_file, (yield on_files)).double()
