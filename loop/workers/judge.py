"""The judge: makes the inputs, knows the right answers, and never loads what it judges."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, TensorFile, in_a_block
from loop.calls.callee import check_result, part_of
from loop.calls.refusal import Refused
from loop.calls.torch_side import NAMES, TORCH_DTYPES
from loop.model.dtypes import is_floating
from loop.model.functions import Tolerance
from loop.workers import judge_messages as messages
from loop.workers import suspects
from loop.workers.asking import Asking, Given, place_of
from loop.workers.findings import are_ties, finding
from loop.workers.relations import Relations
from loop.workers.rounded import Answer, Rounding
from loop.workers.telling_inputs import Drawn, looked
from loop.workers.truth import (
    Truth,
    apart,
    doubt,
    errors,
    excess_of,
    loose,
    outside,
    rounding_may_explain,
    same,
    truth_of,
    why_unjudged,
    zeros_pass,
)
from loop.workers.wire import Done, Request

Reply = TypeVar("Reply")


class Judge:
    """Holds the truth of every call it was asked to expect."""

    def __init__(self, terms: messages.Begin) -> None:
        torch_side.use_threads(terms.threads)
        self.asking = Asking(terms)
        self.reference = torch_side.find(terms.reference)
        self.plain, self.form = (torch_side.find(name) if name else None for name in (terms.plain, terms.form))
        self.shapes, self.tolerance, self.alone = terms.shapes, terms.tolerance, terms.alone
        self.answers: dict[str, Answer] = {}
        self.drawn = Drawn()
        self.rounding = Rounding(self.asking, self.reference, self.plain is not None, self._formed)
        self.relations = Relations(terms.shapes, terms.tolerance, self.plain)

    def answer(self, request: Request[Any]) -> object:
        """The reply to a request about a target."""
        answers: dict[type, Callable[[Any], object]] = {
            messages.Expect: self.expect,
            messages.Compare: self.compare,
            messages.Discard: self.discard,
            messages.Tell: self.tell,
            messages.Look: self.look,
            messages.Relate: self.relations.begin,
            messages.GiveOutput: self.relations.go_on,
        }
        reply = answers[type(request)](request)
        torch_side.give_back_memory()
        return reply

    def expect(self, request: messages.Expect) -> messages.Expected:
        """Write the inputs of a call and work out its right answer; `twice`: and see that it comes out again."""
        given = self.asking.inputs(request)
        self.drawn.note(given)
        place = place_of(request, given)
        try:
            answer = self._settled(given.on(place), request)
        except (Refused, RuntimeError):  # A reference that knows only the CPU, or is too large for this GPU.
            if place == "cpu":
                raise
            answer = self._settled(given, request)
        self.answers[request.call.key] = answer
        call = answer.given.call if request.found or self.asking.generator else None
        return messages.Expected(call=call, notes=(*given.notes, *answer.notes), **self._doubts(answer))

    def _doubts(self, answer: Answer) -> dict[str, Any]:
        """What speaks against judging by an answer; a checker that decides alone needs none."""
        whose = "`plain`" if self.plain else "the reference"
        truths = [one for one in answer.truths if not one.is_whole]
        doubts = [doubt(one) for one in truths] if self.plain or answer.in_own_types else []
        unjudged = [why_unjudged(one, whose) for one in truths if not self.alone]
        return {
            "doubt": next(filter(None, doubts), ""),
            "unjudged": next(filter(None, unjudged), ""),
            "zeros_pass": not self.alone and bool(truths) and all(map(self._zeros_pass, answer.truths)),
        }

    def _zeros_pass(self, truth: Truth) -> bool:
        """Whether a variant that writes zeros to an output would be right."""
        if not zeros_pass(truth.tolerance, truth.reference):
            return False
        zeros = torch.zeros(truth.reference.shape, dtype=TORCH_DTYPES[truth.part.dtype])
        return self._worst(truth, [zeros.to(truth.reference.device)]).badness[:2] == (0, False)

    def _settled(self, given: Given, request: messages.Expect) -> Answer:
        """The right answer to a call, which comes out again where that is asked."""
        answer, native = self._answer(given, found=request.found)
        if not request.twice:
            return answer
        call, inputs = answer.given.call, given.tensors
        if native is None:
            first = {one.part.name: one.reference for one in answer.truths}
            found, _ = self._exact(call, inputs, None, later=True)
            again = {name: self._formed(one.double(), call) for name, one in found.items()}
        else:  # As telling as float64, and cheaper.
            first, (again, _) = native, self._in_own_types(call, inputs, later=True)
        if not all(same(one, other) for one, other in zip(first.values(), again.values(), strict=True)):
            raise Refused(f"the reference is not deterministic: two answers to {request.call.key} differ")
        return answer

    def _in_own_types(
        self, call: Call, inputs: list[Tensor], *, later: bool = False
    ) -> tuple[dict[str, Tensor], Any]:
        """What the reference gives to a call as it is: tensors by name, and as it came."""
        found, whole = self.asking.outputs("reference", self.reference, inputs, call, exact=False, later=later)
        # Copies, for it may keep them, and write its next answer there.
        return {name: one.clone() if isinstance(one, Tensor) else one for name, one in found.items()}, whole

    def discard(self, request: messages.Discard) -> Done:
        """Forget the truth of a call."""
        self.answers.pop(request.key, None)
        return Done()

    def _answer(self, given: Given, *, found: bool) -> tuple[Answer, dict[str, Tensor] | None]:
        """The right answer to a call: in float64, and as the plain implementation has it. With it, the outputs in
        the call's own types, where they were asked for."""
        call, inputs = given.call, given.tensors
        in_own_types = found or bool(call.structure or call.parts) or not is_floating(call.output.dtype)
        plain, native, expected = None, None, None
        if in_own_types:
            native, expected = self._in_own_types(call, inputs)
        if self.plain is not None:
            plain, _ = self.asking.outputs("plain", self.plain, inputs, call, exact=False)
        if found and native is not None:
            call = self._found(call, native)
        right, notes = self._exact(call, inputs, native)
        lossy = plain or native or self._lossy(call, inputs, right)
        truths = [
            self._truth(call, one, right[name], lossy.get(name), (native or {}).get(name))
            for name, one in zip(right, call.outputs, strict=True)
        ]
        kept = expected if self.asking.checker else None
        notes = (*notes, *([] if self.alone else filter(None, (loose(one) for one in truths))))
        return Answer(replace(given, call=call), truths, native is not None, kept, notes), native

    def _lossy(self, call: Call, inputs: list[Tensor], right: dict[str, Tensor]) -> dict[str, Tensor]:
        """The outputs in the call's own types where zeros would be right: they tell what of them is noise."""
        outputs = zip(right.values(), call.outputs, strict=True)
        if any(zeros_pass(self._tolerance(call, one), output) for output, one in outputs):
            with contextlib.suppress(Refused):
                return self._in_own_types(call, inputs)[0]
        return {}

    def _found(self, call: Call, native: dict[str, Tensor]) -> Call:
        """The call with the outputs that the reference gave."""
        if not native:
            raise Refused(f"the reference on {call.key}: it gives no tensor")
        for name, tensor in native.items():
            if tensor.dtype not in NAMES:
                raise Refused(f"the reference on {call.key}: {name} is of {tensor.dtype}, which is not supported")
        path, items = call.output.path, native.items()
        files = [TensorFile(name, path, tuple(one.shape), NAMES[one.dtype]) for name, one in items]
        updates = self.asking.terms.updates
        block, parts = in_a_block(files, path)
        if len(parts) == 1 and not updates:
            return call.but(output=files[0], parts=())
        places = [one.name for one in call.inputs]
        numbers = tuple(places.index(updates[one.name]) if one.name in updates else -1 for one in parts)
        return call.but(output=block, parts=parts, updates=numbers if updates else ())

    def _exact(
        self, call: Call, inputs: list[Tensor], native: dict[str, Tensor] | None, *, later: bool = False
    ) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """The outputs in float64, and what could not be exercised of that."""
        try:
            right, _ = self.asking.outputs("reference", self.reference, inputs, call, exact=True, later=later)
        except Refused as refused:
            if native is None:
                raise
            why = str(refused).partition(": ")[2]
            return native, (f"the reference in float64: it runs in its own types alone ({why})",)
        notes = []
        for (name, tensor), one in zip(right.items(), call.outputs, strict=True):
            kind = torch.float64 if is_floating(one.dtype) else TORCH_DTYPES[one.dtype]
            try:
                check_result(tensor, one.shape, kind if native is None else tensor.dtype)
            except Refused as wrong:
                raise Refused(f"the reference on {call.key}: {wrong}") from wrong
            if tensor.dtype != kind and tensor.is_floating_point():
                notes.append(f"the reference in float64: it rounds {name} to {NAMES[tensor.dtype]}")
        return right, tuple(notes)

    def _truth(
        self, call: Call, part: TensorFile, right: Tensor, plain: Tensor | None, native: Tensor | None
    ) -> Truth:
        """What is right of one output."""
        reference = self._formed(right.to(torch.float64, copy=True), call)
        names = self.shapes.outputs.get(part.name, self.shapes.output).split()
        if len(names) != reference.dim() or "..." in names:
            names = [f"axis_{n}" for n in range(reference.dim())]
        formed = None if plain is None else self._formed(plain, call)
        truth = truth_of(part, names, reference, formed, self._tolerance(call, part))
        return replace(truth, also=native.double()) if truth.is_whole and native is not None else truth

    def _tolerance(self, call: Call, part: TensorFile) -> Tolerance:
        """What an output may be off: by the workload's type where that is the only one, else by its own."""
        mixed = call.structure or call.parts or not is_floating(part.dtype)
        chosen = self.tolerance.get(part.dtype) if mixed else None
        if chosen is None and not is_floating(part.dtype):
            return Tolerance(atol=0.0, rtol=0.0)
        chosen = chosen or self.tolerance.get(call.dtype)
        if chosen is None:
            raise Refused(f"no tolerance for {part.name} of {part.dtype}: `tolerance` of target.yaml has none")
        return chosen

    def look(self, request: messages.Look) -> messages.Looked:
        """What inputs that were drawn could not show, and what the reference does not read."""
        return looked(self.asking, self.reference, self.drawn, request)

    def compare(self, request: messages.Compare) -> messages.Finding:
        """Hold the output files of a call against the truth: what is found in the worst of them."""
        return self._with_room(request.call, lambda answer: self._held(request, answer))

    def _with_room(self, call: Call, asked: Callable[[Answer], Reply]) -> Reply:
        """What is asked of the answer to a call; on the CPU from now on, where a GPU has too little memory."""
        try:
            return asked(self.answers[call.key])
        except torch.OutOfMemoryError:
            self.answers[call.key] = answer = self.answers[call.key].on("cpu")
            return asked(answer)

    def _held(self, request: messages.Compare, answer: Answer) -> messages.Finding:
        blocks = [_block(answer.given.call, path) for path in request.outputs]
        findings = []
        for n in range(0 if self.alone else len(answer.truths)):
            own = [block[n] for block in blocks]
            findings.append(self._compared(answer, n, own, suspected=request.suspected))
        given, expected = answer.given, answer.expected
        checked = [self.asking.check(given, expected, one) for one in blocks] if self.asking.checker else []
        if not findings:
            findings = [messages.Finding(0.0, None, 0, sum(map(Tensor.numel, blocks[0])), "", None, None, {}, {})]
        worst = max(findings, key=lambda finding: finding.badness)
        before = None if self.alone else self.answers.get(request.before)
        unmoved = apart(answer.truths, before.truths) if before else 0.0
        return worst.but(checker=next(filter(None, checked), ""), unmoved=unmoved)

    def _compared(self, answer: Answer, n: int, own: list[Tensor], *, suspected: bool) -> messages.Finding:
        """What is found in the worst of several outputs of one name."""
        call, truth = answer.given.call, answer.truths[n]
        place = truth.reference.device
        outputs = [self._formed(output.to(place), call) for output in own]
        worst = self._worst(truth, outputs)
        if self._may_round(truth) and worst.badness[:2] != (0, False) and rounding_may_explain(truth, outputs):
            truth = answer.truths[n] = self.rounding.allowed(answer, n)
            worst = self._worst(truth, outputs)
        if worst.wrong and not truth.is_whole:
            worst = self._explained(answer, n, outputs)
        if worst.wrong:
            tied = all(are_ties(answer.given.tensors, truth, one) for one in outputs if truth.outside(one).any())
            worst = worst.but(tied=tied)
        if len(answer.truths) > 1:
            worst = worst.but(output=truth.part.name)
        return worst.but(fits=self._fits(answer, n, outputs)) if suspected and worst.wrong else worst

    def _explained(self, answer: Answer, n: int, outputs: list[Tensor]) -> messages.Finding:
        """What is found where the reference's own rounding, or its overflow, may explain wrong elements."""
        given, truth = answer.given, answer.truths[n]
        for output in outputs:
            truth = self.rounding.without_noise(given, truth, n, output)
        answer.truths[n] = truth
        wrong = [output for output in outputs if bool(truth.outside(output).any())]
        why = [self.rounding.overflow(given, truth, n, output) for output in wrong]
        return self._worst(truth, outputs).but(unjudged=why[0] if why and all(why) else "")

    def _worst(self, truth: Truth, outputs: list[Tensor]) -> messages.Finding:
        found = (finding(truth.facing(output), output, bounded=self.plain is not None) for output in outputs)
        return max(found, key=lambda one: one.badness)

    def _fits(self, answer: Answer, n: int, outputs: list[Tensor]) -> dict[str, bool] | None:
        """What explains the wrong ones of some outputs of one name."""
        given, truth, rtol = answer.given, answer.truths[n], answer.truths[n].tolerance.rtol
        held = []
        for one in map(Tensor.double, outputs):
            if bool((wrong := outside(one, truth.reference, truth.facing(one).allowed)).any()):
                held.append(suspects.WrongOutput(truth.reference, truth.allowed, rtol, one, wrong))

        def asked(inputs: Sequence[Tensor]) -> Tensor:
            found, _ = self.asking.outputs("reference", self.reference, inputs, given.call, exact=True)
            return self._formed(list(found.values())[n].double(), given.call)

        if self.asking.is_plain(given.call):
            known = suspects.of_target(self.asking, self.reference, given, truth.reference)
        else:
            other = partial(self.rounding.answer_to, given, n)
            known = suspects.of_attributes(given.call, self.shapes, other)
        others = suspects.of_any(asked, self.shapes, given, truth.reference, whole=truth.is_whole)
        found = suspects.fits(held, [*known, *others])
        return suspects.fits(held, held[0].multiplied()) if found == {} else found

    def _may_round(self, truth: Truth) -> bool:
        """Whether what rounding does is still to be allowed for; a tolerance of zero asks for the exact answer."""
        asked = truth.tolerance.atol or truth.tolerance.rtol
        return not truth.rounded and not truth.is_whole and bool(asked)

    def tell(self, request: messages.Tell) -> messages.Told:
        """How many times what is allowed a mistake is off on a call, in float64.

        `other`: it gives the answer to that call. No variant is asked: so a gate that overlooks a mistake is told
        from inputs on which there is nothing to see.
        """
        return self._with_room(request.call, lambda answer: self._told(request, answer))

    def _told(self, request: messages.Tell, answer: Answer) -> messages.Told:
        from loop.workers.telling_inputs import mistaken

        call, n = answer.given.call, next((n for n, one in enumerate(answer.truths) if not one.is_whole), 0)
        truth = answer.truths[n]
        try:
            if request.other:
                output = self.answers[request.other].truths[n].reference.to(truth.reference.device)
            elif self.asking.is_plain(call):
                output = self._formed(mistaken(self.reference, call, answer.given.tensors, request.mistake), call)
            else:
                output = self._formed(
                    self._mistaken(call, answer.given.tensors, request.mistake)[n].double(), call
                )
            excess = self._excess(truth, output)
            if 1 < excess and self._may_round(truth) and rounding_may_explain(truth, [output]):
                truth = answer.truths[n] = self.rounding.allowed(answer, n)
                excess = self._excess(truth, output)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # The reference cannot be called so: what the mistake is cannot be said.
            return messages.Told(0.0)
        return messages.Told(excess)

    def _mistaken(self, call: Call, inputs: list[Tensor], terms: dict[str, Any]) -> list[Tensor]:
        """The outputs of a reference of any structure with a mistake, in float64."""
        from loop.workers.telling_inputs import of_structure

        wrong = of_structure(self.reference, call, terms)
        return list(self.asking.outputs("reference", wrong, inputs, call, exact=True)[0].values())

    def _excess(self, truth: Truth, output: Tensor) -> float:
        """How many times what is allowed an output is off: in its worst element, the largest error or the mean."""
        differ = outside(output, truth.reference, torch.zeros_like(truth.allowed))
        if not bool(differ.any()):
            return 0.0
        found = float(excess_of(output, truth.facing(output))[differ].max())
        if self.plain is None:
            return found
        return max(found, *(e / m for e, m in zip(errors(output, truth.reference), truth.most, strict=True)))

    def _formed(self, output: Tensor, call: Call) -> Tensor:
        """An output as it is compared."""
        return output if self.form is None else self.asking.ask("form", self.form, [output.double()], call)


def _block(call: Call, path: str) -> list[Tensor]:
    """The outputs in a file, in their own types. Refused when it has another size."""
    block = torch_side.read_tensor(call.output, path)
    return [part_of(block, one) for one in call.parts] if call.parts else [block]


def start(terms: messages.Begin) -> Judge:
    """A judge; raises Refused when a function of the target cannot be found."""
    try:
        return Judge(terms)
    except AttributeError as error:
        raise Refused(str(error)) from error
