"""Mutation-test the gate: send each control of a variant through the checks of a real candidate."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Literal

from loop.base.processes import Tick
from loop.calls.call import Call, attribute_number
from loop.gate.verify import CALL_LIMIT_S, Job, SideChecker, values_key
from loop.mistakes.wrong_results import wrong_results
from loop.model.causes import Cause
from loop.model.dtypes import Dtype, Layout
from loop.model.measurement import ControlResult
from loop.model.output import Output
from loop.model.signature import OUTPUT, Signature
from loop.model.target import Target, Workload
from loop.model.workloads import count_operations, is_supported
from loop.workers.bench import Bench, KeptWorker, Side
from loop.workers.judge_process import Unjudged
from loop.workers.messages import Compute, Computed

Causes = tuple[Cause, ...]
WRONG: Causes = ("elements", "loose tolerance", "NaN", "plain error")
MISSING: Causes = (*WRONG, "launched nothing", "not written")
CHANGED: Causes = ("changed input",)
GROSS = "zeros"
"""Writes only zeros. If this control passes, the tolerance is wider than every output."""
MAY_BE_WITHIN = (
    *("ignore", "swap", "cut", "round_inputs", "set_attribute", "wrong_number"),
    *("one_off", "growing"),
)
"""Mistakes that the target's inputs may not show: their error depends on the function, or is a multiple
of the stated tolerance that the function's own rounding error exceeds."""
UNWRITTEN = ("leave_tail", "one_nan", "nothing")
"""Mistakes that leave NaN in the output; the gate has to find the NaN."""
UNKNOWN = ("cut",)
"""Mistakes that need dimensions of the inputs by name, to know which are equal."""
TELLING = 4096
"""Operations from which a workload is large enough to show every mistake."""
WORKLOADS, SEEDS = 3, 2
"""Most workloads for a control, and seeds (sets of values) for each."""
FLOATING = ("float32", "float64", "float16", "bfloat16")


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
    expected: Causes = WRONG
    """Causes of a rejection that count as the right reason."""
    theme: Literal["value", "cheat", "honest"] = "value"
    """`value`: wrong result; `cheat`: right only when checked; `honest`: no mistake, must pass."""
    kinds: Sequence[str] = ("c_abi", "python")
    """Kinds of variant that the mistake can be injected into."""
    applies: Callable[..., bool] = lambda workload: True
    """Whether the mistake can show on a workload."""
    shortens: Sequence[str] = ()
    """Dimensions that the mistake shortens by an eighth; the variant must accept the rest."""
    varies: bool = False
    """Whether its outputs differ from run to run; not tried on nondeterministic variants."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the mistake."""

    def left(self, workload: Workload) -> Workload:
        """The workload that the variant itself computes, with shortened dimensions."""
        sizes = {name: size - max(1, size // 8) for name, size in workload.sizes.items() if name in self.shortens}
        return workload.model_copy(update={"sizes": {**workload.sizes, **sizes}})

    def mistake(self, target: Target, dtype: Dtype) -> dict[str, Any]:
        """The message that tells a worker which mistake to inject."""
        tolerance = target.tolerance.get(dtype)
        return {
            "name": self.name,
            "make": self.make,
            "tolerance": {"atol": tolerance.atol, "rtol": tolerance.rtol}
            if tolerance
            else {"atol": 0.0, "rtol": 0.0},
            "attributes": list(target.signature.attributes),
            **({"is_class": True} if target.modules else {}),
            **self.terms,
        }


HONEST = Control("honest", "", expected=(), theme="honest")
HONEST_COPY = Control("honest, by way of a control", "none", expected=(), theme="honest")
"""Uses the controls' array copies without a mistake. If it passes, copies cause no rejection."""
EXACT = Control("honest, in float64", "exact", expected=(), theme="honest")
"""Computes in float64, so it rounds differently from the reference's own type; has to pass too."""


def controls(signature: Signature) -> tuple[Control, ...]:
    """All controls that a signature allows. Several share a kind (`make`); one of a kind is tried."""
    every: list[Control] = []
    for name, attribute in signature.attributes.items():  # Change a number; fix a flag or choice.
        initial = attribute.default_value
        if attribute.kind == "number":
            every.append(Control(f"wrong {name}", "wrong_number", terms={"attribute": name}))
            continue
        terms = {"attribute": name, "to": initial, "number": attribute_number(attribute.choices, initial)}
        drops = Control(f"drops {name}", "set_attribute", terms=terms)
        every.append(replace(drops, applies=lambda w, n=name, value=initial: w.attributes[n] != value))
    for mistake in wrong_results(signature.inputs, signature.output_dimensions):
        expected: Causes = ("NaN",) if mistake.make in UNWRITTEN else WRONG
        shortens = mistake.sized if mistake.make in UNKNOWN else ()
        control = Control(mistake.control, mistake.make, expected, shortens=shortens, terms=mistake.terms)
        every.append(replace(control, applies=lambda workload, m=mistake: m.shows(workload.sizes)))
    cheat: dict[str, Any] = {"theme": "cheat"}
    in_python: dict[str, Any] = {"theme": "cheat", "kinds": ("python",)}
    every += [
        Control("writes beyond the end", "beyond", ("outside",), kinds=("c_abi",)),
        Control("writes before the beginning", "before", ("outside",), kinds=("c_abi",)),
        Control("stale output", "stale", **cheat),
        Control("skips every other call", "skip_every_other", ("NaN",), **cheat),
        Control("cached by address", "by_address", **cheat),
        Control("keeps a copy of its inputs", "keeps_inputs", **cheat),
        Control("not deterministic", "vary", ("two outputs",), varies=True, **cheat),
        Control("gives a promise", "give_promise", ("wrong result",), **in_python),
        Control("gives another type", "other_type", ("wrong result",), **in_python),
        Control("keeps its result", "keep_result", **in_python),
        Control("leaves every other result unwritten", "leave_unwritten", MISSING, **in_python),
    ]
    for place, (name, dimensions) in enumerate(signature.inputs.items()):
        of_input: dict[str, Any] = {"terms": {"input": place}}
        every.append(Control(f"writes to {name}", "write_input", CHANGED, **cheat, **of_input))
        every.append(Control(f"uses {name} as workspace", "use_input", CHANGED, **cheat, **of_input))
        pairs = list(zip(dimensions.split(), signature.output_dimensions.split(), strict=False))
        if len(dimensions.split()) == len(signature.output_dimensions.split()):
            of_input["applies"] = lambda w, p=pairs: all(w.sizes[a] == w.sizes[b] for a, b in p)
            every.append(Control(f"answers in {name}", "answer_in_input", CHANGED, **cheat, **of_input))
            every.append(Control(f"gives {name} back", "give_input", **in_python, **of_input))
    return tuple(every)


def controls_by_shape(inputs: Sequence[Sequence[int]], output: Sequence[int]) -> Iterator[tuple[Control, bool]]:
    """Controls of a Python variant without named dimensions, each with whether it can show. `inputs`
    and `output`: shapes of the floating-point inputs, and of the first floating-point output.
    """
    sizes: dict[str, int] = {}
    texts = {}
    for name, shape in [*((f"input{n}", shape) for n, shape in enumerate(inputs)), (OUTPUT, output)]:
        axes = [f"axis{axis}" if name == OUTPUT else f"{name}_{axis}" for axis in range(len(shape))]
        sizes |= dict(zip(axes, shape, strict=True))
        texts[name] = " ".join(axes)
    signature = Signature.model_construct(inputs=texts, outputs={OUTPUT: texts.pop(OUTPUT)}, attributes={})
    workload = Workload(name="shapes", sizes=sizes, dtype="float32")
    for control in controls(signature):
        if "python" in control.kinds and control.make not in UNKNOWN:
            # A part that is not computed may hold any wrong value, not only NaN.
            known = replace(control, expected=WRONG) if control.expected == ("NaN",) else control
            yield known, control.applies(workload)


def base_dtype(bench: Bench, base: Side) -> Dtype:
    """The element type measured on this device if the variant takes it; else the variant's first."""
    usual = bench.target.dtypes[bench.device]
    return usual if usual in base.dtypes else base.dtypes[0]


def applicable_controls(
    bench: Bench, base: Side, workloads: Sequence[Workload]
) -> Generator[Tick, None, list[tuple[Control, list[Workload]]]]:
    """One control of each kind for a variant, about thirty, with the few workloads to try it on.

    No workloads: none can show it. Without named dimensions the judge's inputs give the shapes.
    """
    target, size = bench.target, partial(count_operations, bench.target)
    usual = [w for w in workloads if w.dtype == base_dtype(bench, base) and is_supported(base, w) and size(w)]
    pairs: dict[str, tuple[Control, list[Workload]]] = {}
    if target.is_plain:
        normal = [workload for workload in usual if workload.values == "normal"]
        normal.sort(key=lambda workload: (size(workload) < TELLING, size(workload)))
        for control in controls(target.signature):
            shows_on = [w for w in normal if control.applies(w) and is_supported(base, control.left(w))]
            if base.kind in control.kinds:
                pairs[control.name] = control, shows_on[:WORKLOADS]
    for workload in [] if target.is_plain else sorted(usual, key=size)[:WORKLOADS]:
        try:
            yield from bench.prepare_answer(workload)
        except Unjudged:
            continue
        call = bench.make_call(workload, "judge")
        inputs = [tensor.shape for tensor in call.inputs if tensor.dtype in FLOATING]
        outputs = [tensor.shape for tensor in call.outputs if tensor.dtype in FLOATING]
        for control, shows in controls_by_shape(inputs, outputs[0]) if inputs and outputs else ():
            pairs.setdefault(control.name, (control, []))[1].extend([workload] if shows else [])
    kinds: dict[str, tuple[Control, list[Workload]]] = {}
    for control, some in pairs.values():
        possible = base.deterministic or not control.varies
        if possible and (control.make not in kinds or not kinds[control.make][1]):
            seeded = [w.model_copy(update={"seed": w.seed + more}) for w in some for more in range(SEEDS)]
            kinds[control.make] = control, seeded
    return list(kinds.values())


@dataclass
class Proof:
    """The results of the controls of some variants."""

    results: list[ControlResult] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Sentences on controls that do not apply."""
    untried: list[str] = field(default_factory=list)
    """Controls for which no time was left."""

    def add(self, other: "Proof", variant: str) -> None:
        """Add the results of one variant's controls."""
        self.results += other.results
        self.left_out += [f"{variant} {reason}" for reason in other.left_out]
        self.untried += [f"{variant}: {name}" for name in other.untried]


class ControlTrial(SideChecker):
    """Verifies one control. All trials of a variant share a worker process with the honest variant.

    Each call tells the worker which mistake to inject.
    """

    def __init__(
        self,
        worker: KeptWorker,
        control: Control,
        workloads: Sequence[Workload],
        digests: dict[str, tuple[str, ...]],
    ) -> None:
        """`digests`: call key to output digests of the honest variant, which runs first; shared."""
        side = worker.side
        if control.make:
            mistake = control.mistake(worker.bench.target, workloads[0].dtype)
            side = side.copy_as(f"{side.name} {control.name}", mistake=mistake)
        super().__init__(Job(side, workloads, layouts=False, enough=True, call_limit_s=CALL_LIMIT_S), worker)
        self.control, self.digests = control, digests
        self.idle = True
        """Whether so far every output equals the honest variant's output bit by bit."""
        self.over = False
        """Whether all checks of this control were made."""

    def ask(
        self, workload: Workload, call: Call, layout: Layout, note: str, *, once: bool = False
    ) -> Generator[Tick, None, Computed]:
        """Have the worker make a call with the mistake injected."""
        request = Compute(call, layout, may_run_once=once, mistake=self.side.mistake)
        most = self.bench.first_call_s if self.control.theme == "honest" else 0.0
        reply = yield from self.worker.ask(request, limit_s=CALL_LIMIT_S, note=note, first_call_s=most)
        self.idle &= reply.digests == self.digests.setdefault(call.key, reply.digests)
        return reply

    def before(self, workload: Workload, layout: Layout, call: Call, reply: Computed) -> str:
        """As in SideChecker, but empty for a `value` control, which tests only the tolerance."""
        return "" if self.control.theme == "value" else super().before(workload, layout, call, reply)

    def conclude(self, proof: Proof, *, alike: bool) -> None:
        """Add this control's result to the proof. `alike`: a stale output passed as a right one."""
        control, failure = self.control, self.checks.first_failure
        is_honest = control.theme == "honest"
        may_be_idle = control.theme == "value" or not (is_honest or self.bench.target.is_plain)
        if failure is None and not self.over:
            proof.untried += [] if is_honest else [control.name]
        elif failure is None and alike and control.theme == "cheat" and control.expected == WRONG:
            proof.left_out.append(f"{control.name}: other values have the same answer")
        elif failure is None and self.idle and may_be_idle:
            proof.left_out.append(f"{control.name}: makes no difference to this function")
        else:
            result = ControlResult(
                name=control.name,
                kind=control.theme,
                base=self.worker.side.name,
                workload=failure.workload.name if failure else "",
                stage="verify",
                killed=failure is not None,
                reason=failure.message if failure else "",
                cause=failure.cause if failure else "",
                expected="|".join(control.expected),
                right_reason=failure is not None and failure.cause in control.expected,
                distinguishable=failure is not None or control.make not in MAY_BE_WITHIN,
            )
            proof.results.append(result)


def prove(
    bench: Bench, base: Side, workloads: Sequence[Workload], ends: float = inf
) -> Generator[Tick, None, Proof]:
    """Verify all controls of one variant, and honest candidates, on a few workloads in one process.

    Honest candidates come first, because controls are compared with their outputs. Controls not finished at
    `ends` (monotonic clock) are reported as untried. Workloads that cannot be judged are skipped.
    """
    proof, digests = Proof(), dict[str, tuple[str, ...]]()
    worker = KeptWorker(
        bench, replace(base, threads=base.threads or bench.threads)
    )  # Its outputs repeat bit by bit.
    chosen = yield from applicable_controls(bench, base, workloads)
    if not chosen:
        proof.left_out.append("every control: no floating-point numbers among both inputs and outputs")
    for control, shows_on in chosen:
        proof.left_out += [] if shows_on else [f"{control.name}: no workload on which it could show"]
    shown = [(control, shows_on) for control, shows_on in chosen if shows_on]
    tried = {values_key(workload): workload for _, shows_on in shown for workload in shows_on}
    honest = [(control, [*tried.values()]) for control in (HONEST, HONEST_COPY) if shown]
    trials = [ControlTrial(worker, control, shows_on, digests) for control, shows_on in (*honest, *shown)]
    try:
        yield from _check_all(bench, trials, tried.values(), ends)
        # If a stale output passes, other values have the same answer: cheats by memory cannot show.
        alike = any(trial.control.make == "stale" and not trial.checks.first_failure for trial in trials)
        for trial in trials:
            trial.conclude(proof, alike=alike)
    finally:
        worker.close()
    return proof


def _check_all(
    bench: Bench, trials: Sequence[ControlTrial], workloads: Iterable[Workload], ends: float
) -> Generator[Tick, None, None]:
    """Check each workload with every trial that needs it, until `ends`."""
    for workload in workloads:
        concerned = [trial for trial in trials if trial.concerns(workload)]
        try:
            if concerned:
                yield from bench.prepare_answer(workload)
        except Unjudged:
            for trial in concerned:
                trial.keys.discard(values_key(workload))
        for trial in concerned:
            if monotonic() >= ends:
                return
            yield from trial.check(workload)
    for trial in trials:
        trial.over = True
