"""Mutation-test the gate: send each control of a variant through the checks of a real candidate."""

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Literal

from loop.base.processes import Tick
from loop.calls.call import Call
from loop.gate.verify import CALL_LIMIT_S, Job, SideChecker, workload_key
from loop.model.base import Model
from loop.model.causes import Cause
from loop.model.dtypes import FLOATS, Dtype, Layout
from loop.model.output import Output
from loop.model.target import OUTPUT, Signature, Target, Workload
from loop.model.workloads import count_operations, is_supported
from loop.workers.bench import Bench, KeptWorker, Side
from loop.workers.messages import Compute, Computed
from loop.workers.program import Unjudged

Causes = tuple[Cause, ...]
WRONG_CAUSES: Causes = ("elements", "loose tolerance", "NaN", "plain error", "not written")
MISSING_CAUSES: Causes = (*WRONG_CAUSES, "launched nothing")
ZEROS_CONTROL = "zeros"
"""Writes only zeros. If this control passes, the tolerance is wider than every output."""
MAY_BE_TOLERATED = ("ignore", "swap", "cut", "round_inputs", "set_attribute", "wrong_number", "one_off", "growing")
"""Mistakes that the target's inputs may not show: their error depends on the function, or is a multiple
of the stated tolerance that the function's own rounding error exceeds."""
LARGE_ENOUGH_OPERATIONS = 4096
"""Operations from which a workload is large enough to show every mistake."""
WORKLOADS_PER_CONTROL, SEEDS_PER_WORKLOAD = 3, 2
"""Most workloads for a control, and seeds (sets of values) for each."""


class ControlResult(Model):
    """Mutation test of the gate: a variant with an injected bug or cheat, or an honest variant."""

    name: str
    kind: Literal["value", "cheat", "honest"]
    """`value`: wrong result; `cheat`: right only when checked; `honest`: must pass."""
    base: str
    workload: str
    killed: bool
    reason: str
    cause: Cause = ""
    expected: str
    """Expected cause codes of the rejection, separated by `|`; empty for `honest`."""
    right_reason: bool
    distinguishable: bool = True
    """False if its outputs stay within the tolerance on the target's inputs, so no check can reject it."""

    @property
    def is_survivor(self) -> bool:
        """Whether the gate accepted an injected mistake that the target's inputs can tell from right."""
        return self.kind != "honest" and not self.killed and self.distinguishable

    @property
    def full_name(self) -> str:
        """Variant and mutation: `cpu: ignores x`."""
        return f"{self.base}: {self.name}"


class GateOutput(Output):
    """The gate's mutation score: how many injected mistakes and cheats it rejects."""

    actions = ("kernel.prove_gate",)

    controls: tuple[ControlResult, ...] = ()
    """One for each control and variant, honest candidates included."""
    killed: int = 0
    """Number of controls that the gate rejected."""
    total: int = 0
    """Number of controls that were counted; honest candidates do not count."""
    survivors: tuple[str, ...] = ()
    """Controls that the gate let pass."""
    rejected: tuple[str, ...] = ()
    """Honest candidates that the gate rejected, and why."""
    wrong_reasons: tuple[str, ...] = ()
    """Controls that the gate rejected for an unexpected cause."""
    not_applicable: tuple[str, ...] = ()
    """Controls that cannot be made here, and why."""
    indistinguishable: tuple[str, ...] = ()
    """Controls whose error stays within the tolerance on the target's inputs; not counted."""


@dataclass(frozen=True)
class Control:
    """One mistake or cheat to inject, and the causes for which the gate may reject it."""

    name: str
    make: str
    """Name of the mistake in `loop.mistakes`; empty: none."""
    expected: Causes = WRONG_CAUSES
    """Causes of a rejection that count as the right reason."""
    theme: Literal["value", "cheat", "honest"] = "value"
    """`value`: wrong result; `cheat`: right only when checked; `honest`: no mistake, must pass."""
    kinds: Sequence[str] = ("c_abi", "python")
    """Kinds of variant that the mistake can be injected into."""
    applies: Callable[..., bool] = lambda workload: True
    """Whether the mistake can show on a workload."""
    shortens: Sequence[str] = ()
    """Dimensions (by name) that the mistake shortens by an eighth; the variant must accept the rest."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the mistake."""

    def mistake_terms(self, target: Target, dtype: Dtype) -> dict[str, Any]:
        """What a worker has to know to inject the mistake: `terms` of `loop.mistakes.wrap`."""
        stated = target.tolerance.get(dtype)
        terms: dict[str, Any] = {"name": self.name, "make": self.make, "is_class": bool(target.modules)}
        terms["tolerance"] = {"atol": stated.atol if stated else 0.0, "rtol": stated.rtol if stated else 0.0}
        return terms | {"attributes": list(target.signature.attributes), **self.terms}


HONEST = Control("honest", "", expected=(), theme="honest")
HONEST_COPY = Control("honest, by way of a control", "none", expected=(), theme="honest")
"""Uses the controls' array copies without a mistake. If it passes, copies cause no rejection."""
EXACT = Control("honest, in float64", "exact", expected=(), theme="honest")
"""Computes in float64, so it rounds differently from the reference's own type; has to pass too."""


def controls(signature: Signature) -> tuple[Control, ...]:
    """All controls that a signature allows. Several share a kind (`make`), as one for each input."""
    cheat: dict[str, Any] = {"theme": "cheat"}
    in_python: dict[str, Any] = {"theme": "cheat", "kinds": ("python",)}
    all_controls = [
        *_attribute_controls(signature),
        *_value_controls(signature),
        Control("writes beyond the end", "beyond", ("outside",), kinds=("c_abi",)),
        Control("writes before the beginning", "before", ("outside",), kinds=("c_abi",)),
        Control("stale output", "stale", **cheat),
        Control("skips every other call", "skip_every_other", ("NaN",), **cheat),
        Control("cached by address", "by_address", **cheat),
        Control("not deterministic", "vary", ("two outputs",), "cheat", kinds=("c_abi",)),
        # Fewer roundings are forgiven in Python; so many may exceed the tolerance.
        Control("not deterministic", "vary", ("two outputs", *WRONG_CAUSES), terms={"roundings": 16}, **in_python),
        Control("gives a promise", "give_promise", ("wrong result",), **in_python),
        Control("gives another type", "other_type", ("wrong result",), **in_python),
        Control("keeps its result", "keep_result", **in_python),
        Control("leaves every other result unwritten", "leave_unwritten", MISSING_CAUSES, **in_python),
    ]
    for number, (name, dimensions) in enumerate(signature.inputs.items()):
        of_input: dict[str, Any] = {"terms": {"input": number}}
        all_controls.append(Control(f"writes to {name}", "write_input", ("changed input",), **cheat, **of_input))
        if len(dimensions.split()) == len(signature.output_dimensions.split()):
            of_input["applies"] = _equal_sizes_test(dimensions, signature.output_dimensions)
            all_controls.append(Control(f"gives {name} back", "give_input", **in_python, **of_input))
    return tuple(all_controls)


def _attribute_controls(signature: Signature) -> Iterator[Control]:
    """Controls that change a number, or fix a flag or choice at its default."""
    for name, attribute in signature.attributes.items():
        default = attribute.default_value
        if attribute.kind == "number":
            yield Control(f"wrong {name}", "wrong_number", terms={"attribute": name})
            continue
        number = attribute.as_number(default)
        yield Control(
            f"drops {name}",
            "set_attribute",
            applies=lambda workload, name=name, default=default: workload.attributes[name] != default,
            terms={"attribute": name, "to": default, "number": number},
        )


def _value_controls(signature: Signature) -> Iterator[Control]:
    """Wrong results that a signature allows. A dimension that the output lacks is taken to be summed over."""
    inputs, output_dimensions = signature.inputs, signature.output_dimensions.split()
    for number, name in enumerate(inputs):
        yield Control(f"ignores {name}", "ignore", terms={"input": number})
    for (first, name), (second, other) in itertools.combinations(enumerate(inputs), 2):
        if len(inputs[name].split()) == len(inputs[other].split()):
            can_show, terms = _equal_sizes_test(inputs[name], inputs[other]), {"inputs": [first, second]}
            yield Control(f"swaps {name} and {other}", "swap", applies=can_show, terms=terms)
    yield Control("low precision", "round_inputs")
    summed_axes: dict[str, list[list[int]]] = {}  # Dimension to its axes in each input.
    for number, dimensions in enumerate(inputs.values()):
        for axis, name in enumerate(dimensions.split()):
            if name not in output_dimensions:
                summed_axes.setdefault(name, [[] for _ in inputs])[number].append(axis)
    for name, axes in summed_axes.items():
        is_long = _longer_than_1_test(name)
        yield Control(f"cuts {name}", "cut", applies=is_long, shortens=[name], terms={"axes": axes})
    for axis, name in enumerate(output_dimensions):
        on_axis: dict[str, Any] = {"applies": _longer_than_1_test(name), "terms": {"axis": axis}}
        yield Control(f"skips tail of {name}", "leave_tail", ("NaN",), **on_axis)
        yield Control(f"zeros in tail of {name}", "zero_tail", **on_axis)
        yield Control(f"error grows along {name}", "growing", **on_axis)
    yield Control(ZEROS_CONTROL, "zeros")
    yield Control("constant", "mean")
    if len(output_dimensions) > 1:
        yield Control("transposed", "transpose", applies=_longer_than_1_test(*output_dimensions[-2:]))
    yield Control("one element off", "one_off")
    yield Control("one element NaN", "one_nan", ("NaN",))
    yield Control("nothing written", "nothing", ("NaN",))


def _equal_sizes_test(first: str, second: str) -> Callable[[Workload], bool]:
    """A test whether tensors of equal rank with these dimensions (`N M`) have one shape on a workload."""
    pairs = list(zip(first.split(), second.split(), strict=True))
    return lambda workload: all(workload.sizes[a] == workload.sizes[b] for a, b in pairs)


def _longer_than_1_test(*names: str) -> Callable[[Workload], bool]:
    """A test whether these dimensions are all larger than 1 on a workload."""
    return lambda workload: all(workload.sizes[name] > 1 for name in names)


def controls_by_shape(inputs: Sequence[Sequence[int]], output: Sequence[int]) -> Iterator[tuple[Control, bool]]:
    """Controls of a Python variant without named dimensions, each with whether it can show. `inputs`, `output`:
    shapes of the floating-point inputs and of the first such output. Dimensions are named as in `input0_1`."""
    sizes = {f"axis{axis}": size for axis, size in enumerate(output)}
    output_text, input_texts = " ".join(sizes), dict[str, str]()
    for number, shape in enumerate(inputs):
        named_sizes = {f"input{number}_{axis}": size for axis, size in enumerate(shape)}
        sizes |= named_sizes
        input_texts[f"input{number}"] = " ".join(named_sizes)
    signature = Signature.model_construct(inputs=input_texts, outputs={OUTPUT: output_text}, attributes={})
    workload = Workload(name="shapes", sizes=sizes, dtype="float32")
    for control in controls(signature):
        if "python" in control.kinds and not control.shortens:
            # A part that is not computed may hold any wrong value, not only NaN.
            expected = WRONG_CAUSES if control.expected == ("NaN",) else control.expected
            yield replace(control, expected=expected), control.applies(workload)


def control_dtype(bench: Bench, honest: Side) -> Dtype:
    """Element type of a variant's controls: the one measured on this device, else the variant's first."""
    device_dtype = bench.target.dtypes[bench.device]
    return device_dtype if device_dtype in honest.dtypes else honest.dtypes[0]


def applicable_controls(
    bench: Bench, honest: Side, workloads: Sequence[Workload]
) -> Generator[Tick, None, list[tuple[Control, list[Workload]]]]:
    """One control of each kind, and the few workloads to try it on, with two seeds each. Of a kind
    the first control is taken that a workload can show; if none can, it has no workloads."""
    operations_of, dtype = partial(count_operations, bench.target), control_dtype(bench, honest)
    usable = [w for w in workloads if w.dtype == dtype and is_supported(honest, w)]
    usable = sorted(filter(operations_of, usable), key=operations_of)  # Without those of no operations.
    if bench.target.is_plain:
        normal = [workload for workload in usable if workload.values == "normal"]
        # The smallest of those that are large enough come first; the too small ones come last.
        normal.sort(key=lambda workload: operations_of(workload) < LARGE_ENOUGH_OPERATIONS)
        candidates = []
        for control in (control for control in controls(bench.target.signature) if honest.kind in control.kinds):
            shows_on = []
            for workload in normal:
                sizes = dict(workload.sizes)
                for name in control.shortens:
                    sizes[name] -= max(1, sizes[name] // 8)
                shortened = workload.model_copy(update={"sizes": sizes})
                if control.applies(workload) and is_supported(honest, shortened):
                    shows_on.append(workload)
            candidates.append((control, shows_on[:WORKLOADS_PER_CONTROL]))
    else:
        candidates = yield from _shape_controls(bench, usable[:WORKLOADS_PER_CONTROL])
    trial_by_kind: dict[str, tuple[Control, list[Workload]]] = {}
    for control, shows_on in candidates:
        if control.make == "vary" and not honest.deterministic:
            continue  # The variant's outputs differ from call to call by themselves.
        if control.make not in trial_by_kind or not trial_by_kind[control.make][1]:
            seeds = [(w, w.seed + increment) for w in shows_on for increment in range(SEEDS_PER_WORKLOAD)]
            seeded = [workload.model_copy(update={"seed": seed}) for workload, seed in seeds]
            trial_by_kind[control.make] = control, seeded
    return list(trial_by_kind.values())


def _shape_controls(
    bench: Bench, workloads: Sequence[Workload]
) -> Generator[Tick, None, list[tuple[Control, list[Workload]]]]:
    """Controls by the shapes of the judge's inputs and outputs, each with the workloads that can show it."""
    by_name: dict[str, tuple[Control, list[Workload]]] = {}
    for workload in workloads:
        try:
            yield from bench.prepare_answer(workload)
        except Unjudged:
            continue
        call = bench.make_call(workload, "judge")
        inputs = [tensor.shape for tensor in call.inputs if tensor.dtype in FLOATS]
        outputs = [tensor.shape for tensor in call.outputs if tensor.dtype in FLOATS]
        for control, can_show in controls_by_shape(inputs, outputs[0]) if inputs and outputs else ():
            _, shows_on = by_name.setdefault(control.name, (control, []))
            if can_show:
                shows_on.append(workload)
    return list(by_name.values())


@dataclass
class Proof:
    """The results of the controls of some variants."""

    results: list[ControlResult] = field(default_factory=list)
    inapplicable: list[str] = field(default_factory=list)
    """Sentences on controls that do not apply."""
    untried: list[str] = field(default_factory=list)
    """Controls for which no time was left."""


class ControlTrial(SideChecker):
    """Verifies one control. All trials of a variant share a worker process with the honest variant. Each
    call tells the worker which mistake to inject."""

    def __init__(
        self,
        worker: KeptWorker,
        control: Control,
        workloads: Sequence[Workload],
        honest_digests: dict[str, tuple[str, ...]],
    ) -> None:
        """`honest_digests`: call key to output digests of the honest variant, which runs first; shared."""
        side, self.mistake = worker.side, None
        if control.make:  # Otherwise it is the honest variant itself.
            self.mistake = control.mistake_terms(worker.bench.target, workloads[0].dtype)
            side = side.copy_as(f"{side.name} {control.name}")
        super().__init__(Job(side, workloads, layouts=False, fail_fast=True, call_limit_s=CALL_LIMIT_S), worker)
        self.control, self.honest_digests = control, honest_digests
        self.equals_honest = True
        """Whether so far every output equals the honest variant's output bit by bit."""

    def make_call(
        self, workload: Workload, call: Call, layout: Layout, note: str, *, once: bool = False
    ) -> Generator[Tick, None, Computed]:
        """Make a call with this control's mistake, if any, and compare its output with the honest one."""
        request = Compute(call, layout, may_run_once=once, mistake=self.mistake)
        # Only an honest call may be the first of its process, and compile.
        first_limit_s = self.bench.first_call_s if self.control.theme == "honest" else 0.0
        reply = yield from self.worker.ask(request, limit_s=CALL_LIMIT_S, note=note, first_call_s=first_limit_s)
        # The honest trial runs first, so the first reply to a call is the honest one.
        expected_digests = self.honest_digests.setdefault(call.key, reply.digests)
        self.equals_honest &= reply.digests == expected_digests
        return reply

    def find_earlier_call(self, workload: Workload, layout: Layout, call: Call, reply: Computed) -> str:
        """As in SideChecker; but empty for a `value` control, whose wrong values the tolerance has to find."""
        return "" if self.control.theme == "value" else super().find_earlier_call(workload, layout, call, reply)

    def conclude(self, proof: Proof, *, stale_passed: bool, is_complete: bool) -> None:
        """Add this control's result to the proof, or why it does not count. `stale_passed`: the control that
        returns an earlier output passed, so other values have the same answer. `is_complete`: whether time was
        left for all checks. Not `distinguishable`: passed, perhaps because its error is within the tolerance."""
        control, failure = self.control, self.checks.first_failure
        is_cheat, is_plain = control.theme == "cheat", self.bench.target.is_plain
        returns_old_values = is_cheat and control.expected == WRONG_CAUSES  # Other causes: it damages memory.
        may_be_harmless = control.theme == "value" or (is_cheat and not is_plain)
        if failure is None and not is_complete:
            proof.untried += [] if control.theme == "honest" else [control.name]
        elif failure is None and stale_passed and returns_old_values:
            proof.inapplicable.append(f"{control.name}: other values have the same answer")
        elif failure is None and self.equals_honest and may_be_harmless:
            proof.inapplicable.append(f"{control.name}: makes no difference to this function")
        else:
            result = ControlResult(
                name=control.name,
                kind=control.theme,
                base=self.worker.side.name,
                workload=failure.workload.name if failure else "",
                killed=failure is not None,
                reason=failure.message if failure else "",
                cause=failure.cause if failure else "",
                expected="|".join(control.expected),
                right_reason=failure is not None and failure.cause in control.expected,
                distinguishable=failure is not None or control.make not in MAY_BE_TOLERATED,
            )
            proof.results.append(result)


def prove(
    bench: Bench, honest: Side, workloads: Sequence[Workload], deadline: float = inf
) -> Generator[Tick, None, Proof]:
    """Verify honest candidates and then all controls of one variant, on a few workloads in one process. Controls
    not finished at the `deadline` (monotonic clock) are untried. Workloads that cannot be judged are skipped."""
    proof, digests = Proof(), dict[str, tuple[str, ...]]()
    # With a fixed number of threads its outputs repeat bit by bit.
    worker = KeptWorker(bench, replace(honest, threads=honest.threads or bench.threads))
    controls_to_try = yield from applicable_controls(bench, honest, workloads)
    if not controls_to_try:
        proof.inapplicable.append("every control: no floating-point numbers among both inputs and outputs")
    for control in (control for control, shows_on in controls_to_try if not shows_on):
        proof.inapplicable.append(f"{control.name}: no workload on which it could show")
    all_workloads = (workload for _, shows_on in controls_to_try for workload in shows_on)
    every_workload = [*{workload_key(workload): workload for workload in all_workloads}.values()]
    candidates = [(HONEST, every_workload), (HONEST_COPY, every_workload), *controls_to_try]
    trials = [ControlTrial(worker, control, shows_on, digests) for control, shows_on in candidates if shows_on]
    is_complete = True
    try:
        for workload in every_workload:
            trials_of_workload = [trial for trial in trials if trial.has_to_check(workload)]
            try:
                if trials_of_workload and is_complete:
                    yield from bench.prepare_answer(workload)
            except Unjudged:
                for trial in trials_of_workload:
                    trial.workload_keys.discard(workload_key(workload))
            for trial in trials_of_workload:
                is_complete = is_complete and monotonic() < deadline
                if is_complete:
                    yield from trial.check(workload)
    finally:
        worker.close()
    stale_passed = any(trial.control.make == "stale" and not trial.checks.first_failure for trial in trials)
    for trial in trials:
        trial.conclude(proof, stale_passed=stale_passed, is_complete=is_complete)
    return proof
