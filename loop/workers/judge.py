"""The judge: makes the inputs, knows the right answers, and never loads what it judges."""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, Refused, TensorFile, in_a_block
from loop.calls.callee import check_result, part_of
from loop.calls.torch_side import NAMES, TORCH_DTYPES
from loop.model.dtypes import is_floating
from loop.model.signature import Tolerance
from loop.workers import judge_messages, suspects, truth
from loop.workers.asking import Asking, Inputs, place_of
from loop.workers.blind_spots import DrawnInputs, blind_spots
from loop.workers.judge_messages import Finding
from loop.workers.messages import Done, Request
from loop.workers.relations import Relations
from loop.workers.truth import Answer, Rounding, Truth, zeros_pass
from loop.workers.workload_call import only_output


class Judge:
    """Holds the right answer to every call it was asked to expect."""

    def __init__(self, terms: judge_messages.Begin) -> None:
        torch_side.use_threads(terms.threads)
        self.asking = Asking(terms)
        self.reference, self.plain, self.form = self.asking.reference, self.asking.plain, self.asking.form
        self.signature, self.tolerance = terms.signature, terms.tolerance
        self.alone = terms.checker is not None and terms.checker.alone
        """Whether the task's checker decides alone."""
        self.answers: dict[str, Answer] = {}
        self.drawn = DrawnInputs()
        self.rounding = Rounding(self.asking, self.reference, self.plain is not None, self._formed)
        self.relations = Relations(terms.signature, terms.tolerance, self.plain)

    def answer(self, request: Request[Any]) -> object:
        """The reply to a request about a target."""
        answers: dict[type, Callable[[Any], object]] = {
            judge_messages.Expect: self.expect,
            judge_messages.Compare: self.compare,
            judge_messages.Look: partial(blind_spots, self.asking, self.reference, self.drawn),
            judge_messages.Relate: self.relations.begin,
            judge_messages.GiveOutput: self.relations.go_on,
        }
        if isinstance(request, judge_messages.Discard):
            self.answers.pop(request.key, None)
            return Done()
        reply = answers[type(request)](request)
        with contextlib.suppress(RuntimeError):  # A reference may have left the GPU in error.
            torch.cuda.empty_cache()  # Other processes may need what torch keeps.
        return reply

    def expect(self, request: judge_messages.Expect) -> judge_messages.Expected:
        """Write the inputs of a call and work out its right answer."""
        inputs = self.asking.inputs(request)
        self.drawn.note(inputs)
        place = place_of(request, inputs)
        try:
            answer = self._settled(inputs.on(place), request)
        except (Refused, RuntimeError):  # A reference that knows only the CPU, or is too large for this GPU.
            if place == "cpu":
                raise
            answer = self._settled(inputs, request)
        self.answers[request.call.key] = answer
        truths = [each for each in answer.truths if not each.is_whole]
        doubts = [truth.doubt(each) for each in truths] if self.plain or answer.in_own_types else []
        whose = "`plain`" if self.plain else "the reference"
        zeros_right = not self.alone and bool(truths)
        for right in answer.truths if zeros_right else ():
            zeros = torch.zeros_like(right.reference, dtype=TORCH_DTYPES[right.part.dtype])
            zeros_right &= zeros_pass(right.tolerance, right.reference)
            zeros_right = zeros_right and self._worst(right, [zeros]).badness[:2] == (0, False)
        unjudged = [truth.why_unjudged(each, whose) for each in truths if not self.alone]
        return judge_messages.Expected(
            call=answer.inputs.call if request.found or self.asking.generator else None,
            notes=(*inputs.notes, *answer.notes),
            doubt=next(filter(None, doubts), ""),
            unjudged=next(filter(None, unjudged), ""),
            zeros_pass=zeros_right,
        )

    def _settled(self, inputs: Inputs, request: judge_messages.Expect) -> Answer:
        """The right answer to a call; Refused where it is asked for twice and differs."""
        answer, native = self._answer(inputs, found=request.found)
        if not request.twice:
            return answer
        call, tensors = answer.inputs.call, inputs.tensors
        if native is None:
            first = {each.part.name: each.reference for each in answer.truths}
            outputs, _ = self._exact(call, tensors, None, later=True)
            again = {name: self._formed(output.double(), call) for name, output in outputs.items()}
        else:  # As telling as float64, and cheaper.
            first, (again, _) = native, self._in_own_types(call, tensors, later=True)
        if not all(map(truth.same, first.values(), again.values())):
            raise Refused(f"the reference is not deterministic: two answers to {request.call.key} differ")
        return answer

    def _in_own_types(
        self, call: Call, tensors: list[Tensor], *, later: bool = False
    ) -> tuple[dict[str, Tensor], Any]:
        """The reference's answer to a call in its own types: tensors by name, and the result as it came."""
        outputs, result = self.asking.outputs("reference", self.reference, tensors, call, exact=False, later=later)
        # Copies, for it may keep them, and write its next answer there.
        return {name: t.clone() if isinstance(t, Tensor) else t for name, t in outputs.items()}, result

    def _answer(self, inputs: Inputs, *, found: bool) -> tuple[Answer, dict[str, Tensor] | None]:
        """The right answer to a call, and the reference's outputs in its own types where it was asked for them."""
        call, tensors = inputs.call, inputs.tensors
        plain, native, expected = None, None, None
        if found or call.structure or call.parts or not is_floating(call.output.dtype):
            native, expected = self._in_own_types(call, tensors)
        if self.plain is not None:
            plain, _ = self.asking.outputs("plain", self.plain, tensors, call, exact=False)
        if found and native is not None:
            call = self._found(call, native)
        right, notes = self._exact(call, tensors, native)
        lossy = plain or native or {}
        pairs = list(zip(right.values(), call.outputs, strict=True))
        if not lossy and any(zeros_pass(self._tolerance(call, part), output) for output, part in pairs):
            # The outputs in the call's own types tell what of them is noise.
            with contextlib.suppress(Refused):
                lossy = self._in_own_types(call, tensors)[0]
        truths = []
        for (name, output), part in zip(right.items(), call.outputs, strict=True):
            reference = self._formed(output.to(torch.float64, copy=True), call)
            names = self.signature.outputs.get(part.name, only_output(self.signature)).split()
            if len(names) != reference.dim() or "..." in names:
                names = [f"axis_{n}" for n in range(reference.dim())]
            formed = self._formed(lossy[name], call) if name in lossy else None
            right_output = truth.truth_of(part, names, reference, formed, self._tolerance(call, part))
            if right_output.is_whole and native is not None:
                right_output = replace(right_output, also=native[name].double())
            truths.append(right_output)
        if not self.alone:
            notes = (*notes, *(each.loose for each in truths if each.loose))
        kept = expected if self.asking.checker else None
        return Answer(replace(inputs, call=call), truths, native is not None, kept, notes), native

    def _found(self, call: Call, native: dict[str, Tensor]) -> Call:
        """The call with the outputs that the reference gave."""
        if not native:
            raise Refused(f"the reference on {call.key}: it gives no tensor")
        for name, tensor in native.items():
            if tensor.dtype not in NAMES:
                raise Refused(f"the reference on {call.key}: {name} is of {tensor.dtype}, which is not supported")
        path, updates = call.output.path, self.signature.updates
        files = [TensorFile(name, path, tuple(t.shape), NAMES[t.dtype]) for name, t in native.items()]
        block, parts = in_a_block(files, path)
        if len(parts) == 1 and not updates:
            return call.but(output=files[0], parts=())
        places = [tensor.name for tensor in call.inputs]
        numbers = tuple(places.index(updates[part.name]) if part.name in updates else -1 for part in parts)
        return call.but(output=block, parts=parts, updates=numbers if updates else ())

    def _exact(
        self, call: Call, tensors: list[Tensor], native: dict[str, Tensor] | None, *, later: bool = False
    ) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """The outputs in float64, and what could not be exercised of that."""
        try:
            right, _ = self.asking.outputs("reference", self.reference, tensors, call, exact=True, later=later)
        except Refused as refused:
            with contextlib.suppress(Refused):
                native = native or self._in_own_types(call, tensors, later=later)[0]
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
                notes.append(f"the reference in float64: it rounds {name} to {NAMES[tensor.dtype]}")
        return right, tuple(notes)

    def _tolerance(self, call: Call, part: TensorFile) -> Tolerance:
        """The tolerance of an output: by the workload's type where that is the only one, else by its own."""
        mixed = call.structure or call.parts or not is_floating(part.dtype)
        chosen = self.tolerance.get(part.dtype) if mixed else None
        if chosen is None and not is_floating(part.dtype):
            return Tolerance(atol=0.0, rtol=0.0)
        chosen = chosen or self.tolerance.get(call.dtype)
        if chosen is None:
            raise Refused(f"no tolerance for {part.name} of {part.dtype}: `tolerance` of target.yaml has none")
        return chosen

    def compare(self, request: judge_messages.Compare) -> Finding:
        """Compare the output files of a call with the truth: the finding of the worst of them."""
        answer = self.answers[request.call.key]
        try:
            return self._compared(request, answer)
        except torch.OutOfMemoryError:  # From now on on the CPU.
            self.answers[request.call.key] = answer = answer.on("cpu")
            return self._compared(request, answer)

    def _compared(self, request: judge_messages.Compare, answer: Answer) -> Finding:
        call, blocks = answer.inputs.call, []
        for path in request.outputs:
            block = torch_side.read_tensor(call.output, path)  # Refused when it has another size.
            blocks.append([part_of(block, part) for part in call.parts] if call.parts else [block])
        if self.alone:
            worst = Finding(0.0, None, 0, sum(map(Tensor.numel, blocks[0])), "", None, None, {}, {})
        else:
            findings = [
                self._one_output(answer, n, [block[n] for block in blocks], request.suspected)
                for n in range(len(answer.truths))
            ]
            worst = max(findings, key=lambda finding: finding.badness)
        checks = blocks if self.asking.checker else []
        complaints = [self.asking.check(answer.inputs, answer.expected, block) for block in checks]
        before = None if self.alone else self.answers.get(request.before)
        unmoved = truth.distance(answer.truths, before.truths) if before else 0.0
        return worst.but(checker=next(filter(None, complaints), ""), unmoved=unmoved)

    def _one_output(self, answer: Answer, n: int, own: list[Tensor], suspected: bool) -> Finding:
        """The finding of the worst of several outputs of one name."""
        inputs, right = answer.inputs, answer.truths[n]
        outputs = [self._formed(output.to(right.reference.device), inputs.call) for output in own]
        worst = self._worst(right, outputs)
        # A tolerance of zero asks for the exact answer.
        may_round = not right.rounded and not right.is_whole and (right.tolerance.atol or right.tolerance.rtol)
        if may_round and worst.badness[:2] != (0, False) and truth.rounding_may_explain(right, outputs):
            right = answer.truths[n] = self.rounding.allowed(answer, n)
            worst = self._worst(right, outputs)
        if worst.wrong and not right.is_whole:  # The reference's own rounding, or its overflow, may explain them.
            for output in outputs:
                right = answer.truths[n] = self.rounding.without_noise(inputs, right, n, output)
            wrong = [output for output in outputs if bool(right.outside(output).any())]
            why = [self.rounding.overflow(inputs, right, n, output) for output in wrong]
            worst = self._worst(right, outputs).but(unjudged=why[0] if why and all(why) else "")
        if worst.wrong:
            wrong = [output for output in outputs if right.outside(output).any()]
            worst = worst.but(tied=all(truth.are_ties(inputs.tensors, right, output) for output in wrong))
        if len(answer.truths) > 1:
            worst = worst.but(output=right.part.name)
        return worst.but(fits=self._fits(inputs, right, n, outputs)) if suspected and worst.wrong else worst

    def _worst(self, right: Truth, outputs: list[Tensor]) -> Finding:
        bounded = self.plain is not None
        findings = (truth.finding(right.facing(output), output, bounded=bounded) for output in outputs)
        return max(findings, key=lambda finding: finding.badness)

    def _fits(self, inputs: Inputs, right: Truth, n: int, outputs: list[Tensor]) -> dict[str, bool] | None:
        """Known faults that explain the wrong ones of some outputs of one name."""
        held, rtol = [], right.tolerance.rtol
        for output in map(Tensor.double, outputs):
            wrong = truth.outside(output, right.reference, right.facing(output).allowed)
            if bool(wrong.any()):
                held.append(suspects.WrongOutput(right.reference, right.allowed, rtol, output, wrong))

        def reference(tensors: Sequence[Tensor], call: Call) -> Tensor:
            return self.rounding.output(call, tensors, n)

        call, tensors, plain = inputs.call, inputs.tensors, self.asking.is_plain(inputs.call)
        faults = suspects.functions(self.asking.terms.faults) if plain else []
        exact = [tensor.double() for tensor in tensors]
        own = [(words, partial(self.asking.ask, "fault", fault, exact, call)) for words, fault in faults]
        of_call = suspects.of_call(reference, call, tensors, self.signature, right.reference, plain=plain)
        results = suspects.of_results(right.reference, whole=right.is_whole)
        fits = suspects.fits(held, itertools.chain(own, of_call, results))
        return suspects.fits(held, held[0].multiplied()) if fits == {} else fits

    def _formed(self, output: Tensor, call: Call) -> Tensor:
        """An output as it is compared."""
        return output if self.form is None else self.asking.ask("form", self.form, [output.double()], call)
