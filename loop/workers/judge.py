"""The judge: makes the inputs, knows the right answers, and never loads what it judges."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, TensorFile, in_a_block
from loop.calls.callee import check_result, part_of
from loop.calls.refusal import Refused
from loop.calls.rounding import moved, roundings, terms_of
from loop.calls.torch_side import NAMES, TORCH_DTYPES
from loop.model.dtypes import is_floating
from loop.workers import judge_messages as messages
from loop.workers import suspects
from loop.workers.asking import Asking, Given, place_of
from loop.workers.findings import finding
from loop.workers.relations import Relations
from loop.workers.tails import tail_of
from loop.workers.truth import (
    IMPLAUSIBLE,
    MAX_SLACK,
    Truth,
    apart,
    beyond,
    doubt,
    errors,
    excess_of,
    largest_of,
    loose,
    outside,
    rounding_may_explain,
    same,
    truth_of,
)
from loop.workers.wire import Done, Request

Reply = TypeVar("Reply")


@dataclass
class Answer:
    """The right answer to a call."""

    given: Given
    truths: list[Truth]
    """One an output."""
    in_own_types: bool = False
    """Whether the reference was asked in the call's own types, too."""
    expected: Any = None
    """What it gave then, as it came: for the task's checker, where there is one."""
    notes: tuple[str, ...] = ()
    """What could not be exercised."""

    def on(self, device: str) -> "Answer":
        """The same on a device."""
        return replace(self, given=self.given.on(device), truths=[one.on(device) for one in self.truths])


class Judge:
    """Holds the truth of every call it was asked to expect."""

    def __init__(self, terms: messages.Begin) -> None:
        torch_side.use_threads(terms.threads)
        self.asking = Asking(terms)
        self.reference = torch_side.find(terms.reference)
        self.plain, self.form = (torch_side.find(name) if name else None for name in (terms.plain, terms.form))
        self.shapes, self.tolerance, self.alone = terms.shapes, terms.tolerance, terms.alone
        self.answers: dict[str, Answer] = {}
        self.relations = Relations(terms.shapes, terms.tolerance, self.plain)

    def answer(self, request: Request[Any]) -> object:
        """The reply to a request about a target."""
        answers: dict[type, Callable[[Any], object]] = {
            messages.Expect: self.expect,
            messages.Compare: self.compare,
            messages.Discard: self.discard,
            messages.Tell: self.tell,
            messages.Relate: self.relations.begin,
            messages.GiveOutput: self.relations.go_on,
        }
        reply = answers[type(request)](request)
        torch_side.give_back_memory()
        return reply

    def expect(self, request: messages.Expect) -> messages.Expected:
        """Write the inputs of a call and work out its right answer; `twice`: and see that it comes out again."""
        given = self.asking.inputs(request)
        place = place_of(request, given)
        try:
            answer = self._settled(given.on(place), request)
        except (Refused, RuntimeError):  # A reference that knows only the CPU, or is too large for this GPU.
            if place == "cpu":
                raise
            answer = self._settled(given, request)
        self.answers[request.call.key] = answer
        checked = self.plain or answer.in_own_types
        doubts = [said for one in answer.truths if checked and not one.is_whole and (said := doubt(one))]
        made = answer.given.call if request.found or self.asking.generator else None
        return messages.Expected(doubts[0] if doubts else "", made, (*given.notes, *answer.notes))

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
        truths = [
            self._truth(call, one, right[name], (plain or native or {}).get(name), (native or {}).get(name))
            for name, one in zip(right, call.outputs, strict=True)
        ]
        kept = expected if self.asking.checker else None
        notes = (*notes, *([] if self.alone else filter(None, (loose(one) for one in truths))))
        return Answer(replace(given, call=call), truths, native is not None, kept, notes), native

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

    def _tolerance(self, call: Call, part: TensorFile) -> messages.Tolerance:
        """What an output may be off: by the workload's type where that is the only one, else by its own."""
        mixed = call.structure or call.parts or not is_floating(part.dtype)
        chosen = self.tolerance.get(part.dtype) if mixed else None
        if chosen is None and not is_floating(part.dtype):
            return messages.Tolerance(0.0, 0.0)
        chosen = chosen or self.tolerance.get(call.dtype)
        if chosen is None:
            raise Refused(f"no tolerance for {part.name} of {part.dtype}: `tolerance` of target.yaml has none")
        return chosen

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
        said = [message for block in blocks if (message := self._checked(answer, block))]
        if not findings:
            total = sum(one.numel() for one in blocks[0])
            findings = [messages.Finding(0.0, None, 0, total, "", None, None, {}, {})]
        worst = max(findings, key=lambda finding: finding.badness)
        before = None if self.alone else self.answers.get(request.before)
        unmoved = apart(answer.truths, before.truths) if before else 0.0
        return worst.but(checker=said[0] if said else "", unmoved=unmoved)

    def _checked(self, answer: Answer, outputs: list[Tensor]) -> str:
        """What the task's own checker says against some outputs."""
        if self.asking.checker is None:
            return ""
        return self.asking.check(answer.given, answer.expected, outputs)

    def _compared(self, answer: Answer, n: int, own: list[Tensor], *, suspected: bool) -> messages.Finding:
        """What is found in the worst of several outputs of one name."""
        call, truth = answer.given.call, answer.truths[n]
        place = truth.reference.device
        outputs = [self._formed(output.to(place), call) for output in own]
        worst = self._worst(truth, outputs)
        if self._may_round(truth) and worst.badness[:2] != (0, False) and rounding_may_explain(truth, outputs):
            truth = answer.truths[n] = self._rounded(answer, n)
            worst = self._worst(truth, outputs)
        if len(answer.truths) > 1:
            worst = worst.but(output=truth.part.name)
        return worst.but(fits=self._fits(answer, n, outputs)) if suspected else worst

    def _worst(self, truth: Truth, outputs: list[Tensor]) -> messages.Finding:
        found = (finding(truth.facing(output), output, bounded=self.plain is not None) for output in outputs)
        return max(found, key=lambda one: one.badness)

    def _is_plain(self, call: Call) -> bool:
        """Whether a call has tensors one by one and gives one."""
        return not (call.structure or call.parts or self.asking.terms.is_class)

    def _fits(self, answer: Answer, n: int, outputs: list[Tensor]) -> dict[str, bool] | None:
        """What explains the wrong ones of some outputs of one name."""
        truth, rtol = answer.truths[n], answer.truths[n].tolerance.rtol
        held = []
        for one in map(Tensor.double, outputs):
            if bool((wrong := outside(one, truth.reference, truth.facing(one).allowed)).any()):
                held.append(suspects.WrongOutput(truth.reference, truth.allowed, rtol, one, wrong))

        def asked(inputs: Sequence[Tensor]) -> Tensor:
            call = answer.given.call
            found, _ = self.asking.outputs("reference", self.reference, inputs, call, exact=True)
            return self._formed(list(found.values())[n].double(), call)

        plain = self._is_plain(answer.given.call)
        known = suspects.of_target(self.asking, self.reference, answer.given, truth.reference) if plain else ()
        others = suspects.of_any(asked, self.shapes, answer.given, truth.reference, whole=truth.is_whole)
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
        from loop.workers.mistaken_reference import mistaken

        call, n = answer.given.call, next((n for n, one in enumerate(answer.truths) if not one.is_whole), 0)
        truth = answer.truths[n]
        try:
            if request.other:
                output = self.answers[request.other].truths[n].reference.to(truth.reference.device)
            elif self._is_plain(call):
                output = self._formed(mistaken(self.reference, call, answer.given.tensors, request.mistake), call)
            else:
                output = self._formed(
                    self._mistaken(call, answer.given.tensors, request.mistake)[n].double(), call
                )
            excess = self._excess(truth, output)
            if 1 < excess and self._may_round(truth) and rounding_may_explain(truth, [output]):
                truth = answer.truths[n] = self._rounded(answer, n)
                excess = self._excess(truth, output)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # The reference cannot be called so: what the mistake is cannot be said.
            return messages.Told(0.0)
        return messages.Told(excess)

    def _mistaken(self, call: Call, inputs: list[Tensor], terms: dict[str, Any]) -> list[Tensor]:
        """The outputs of a reference of any structure with a mistake, in float64."""
        from loop.workers.mistaken_reference import of_structure

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

    def _rounded(self, answer: Answer, n: int) -> Truth:
        """The truth of an output, with what any sound order of summation and any sound exponential may lose."""
        call, inputs, truth = answer.given.call, answer.given.tensors, answer.truths[n]

        def asked(tensors: list[Tensor], *, exact: bool = True) -> Tensor:
            found, _ = self.asking.outputs("reference", self.reference, tensors, call, exact=exact)
            return self._formed(list(found.values())[n].double(), call)

        try:
            dtype = truth.part.dtype if call.structure else call.dtype
            floor = moved(asked, inputs, truth.reference, dtype).times(roundings(dtype, self._terms(call)))
        except Refused:  # It runs in its own types alone: how it is conditioned is not known.
            return replace(truth, rounded=True, tail=None)
        lost = MAX_SLACK * truth.plain_max if self.plain is None else 0.0
        tail = tail_of(floor.each[floor.each > 0])
        own = None if self.plain or answer.in_own_types else self._in_type(truth, inputs, asked)
        if own is not None:
            lost = MAX_SLACK * errors(own, truth.reference)[0]
            tail += beyond(truth.tolerance, truth.reference, own, MAX_SLACK)
        if truth.tail is not None:
            tail += truth.tail
        largest = min(max(floor.largest, lost), IMPLAUSIBLE * largest_of(truth.reference))
        most = (max(truth.most[0], largest), max(truth.most[1], floor.mean))
        return replace(truth, rounded=True, most=most, allowed=truth.allowed.clamp(min=largest), tail=tail)

    def _terms(self, call: Call) -> int:
        """Terms that an element of an output may sum."""
        sizes = self.asking.sizes(call)
        if self._is_plain(call) and sizes:
            return terms_of(self.shapes.output, sizes)
        return max((size for one in call.inputs for size in one.shape), default=1)

    def _in_type(self, truth: Truth, inputs: list[Tensor], answer: Callable[..., Tensor]) -> Tensor | None:
        """What the reference itself gives in the inputs' own types, where there is no plain implementation."""
        try:
            output = answer(inputs, exact=False)
        except Refused:
            return None
        return output if output.shape == truth.reference.shape else None

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
