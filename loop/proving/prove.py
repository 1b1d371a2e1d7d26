"""The action `kernel.prove_gate`, a mutation test of the gate, and what reports say of it."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod
from time import monotonic
from typing import Any, Literal

from loop.base.processes import Waiting
from loop.gate.kernel import build_sides, distinct_workloads, unjudged_workloads, usual_dtype
from loop.gate.model import PropertiesOutput
from loop.gate.verify import CALL_LIMIT_S, Job, SideChecker, workload_key
from loop.model.base import Model
from loop.model.causes import Cause
from loop.model.dtypes import FLOATS, Dtype
from loop.model.measurement import SpeedVerdict, Verdict
from loop.model.output import MeasureOutput, Output, SanitizeOutput, outputs_of
from loop.model.record import Finished
from loop.model.target import OUTPUT, PythonVariant, Signature, Target, Workload
from loop.model.workloads import count_operations, expand_sets, is_supported
from loop.report import format as say
from loop.report.markdown import Table, drop_empty_columns
from loop.steps import context as steps
from loop.steps.context import Context, Result, ResultLifetime, RunningAction
from loop.timing.against_known_good import CompareOutput
from loop.workers.bench import Bench, KeptWorker, Side
from loop.workers.program import Unjudged

Causes = tuple[Cause, ...]
WRONG_CAUSES: Causes = ("elements", "loose tolerance", "NaN", "plain error", "not written")
MISSING_CAUSES: Causes = (*WRONG_CAUSES, "launched nothing")
ZEROS_CONTROL = "zeros"  # If it passes, the tolerance is wider than every output.
MAY_BE_TOLERATED = (
    *("ignore", "swap", "cut", "round_inputs"),
    *("set_attribute", "wrong_number", "one_off", "growing"),
)
"""Mistakes that the target's inputs may not show: their error depends on the function, or is a
multiple of the stated tolerance that the function's own rounding error exceeds."""
LARGE_ENOUGH_OPERATIONS = 4096  # A workload of so many operations can show every mistake.
WORKLOADS_PER_CONTROL, SEEDS_PER_WORKLOAD = 3, 2  # At most. A seed is a set of values.
GATE_DEPENDS_ON = "the gate and the target (it does not depend on the kernels' code)"
PROOF_SHARE = 0.5  # Share of the step's kill time after which no more controls are tried.


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
    """False if its outputs stay within the tolerance on the target's inputs: no check sees it."""

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
    total: int = 0
    """Number of controls that were counted; honest candidates do not count."""
    survivors: tuple[str, ...] = ()
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
    make: str  # Name of the mistake in `loop.mistakes`; empty: none.
    expected: Causes = WRONG_CAUSES  # Causes of a rejection that count as the right reason.
    theme: Literal["value", "cheat", "honest"] = "value"
    """`value`: wrong result; `cheat`: right only when checked; `honest`: no mistake, must pass."""
    kinds: Sequence[str] = ("c_abi", "python")  # Of variants that the mistake can be put into.
    shows: bool = True  # Whether the mistake can show on the workload that it was listed for.
    shortens: Sequence[str] = ()  # Dimensions cut by an eighth; the variant must take the rest.
    settings: Mapping[str, Any] = field(default_factory=dict)  # Further arguments of the mistake.

    def mistake_settings(self, target: Target, dtype: Dtype) -> dict[str, Any]:
        """What a worker has to know to inject the mistake: `settings` of `loop.mistakes.wrap`."""
        stated = target.tolerance.get(dtype)
        atol, rtol = (stated.atol, stated.rtol) if stated else (0.0, 0.0)
        settings: dict[str, Any] = {"name": self.name, "make": self.make}
        settings |= {"is_class": bool(target.modules), "tolerance": {"atol": atol, "rtol": rtol}}
        return settings | {"attributes": list(target.signature.attributes), **self.settings}


HONEST = Control("honest", "", expected=(), theme="honest")
HONEST_COPY = Control("honest, by way of a control", "none", expected=(), theme="honest")
"""Uses the controls' array copies without a mistake. If it passes, copies cause no rejection."""
EXACT = Control("honest, in float64", "exact", expected=(), theme="honest")
"""Computes in float64, so it rounds differently from the reference's own type; has to pass too."""


def controls(signature: Signature, workload: Workload) -> Iterator[Control]:
    """All controls that a signature allows. Several share a kind (`make`), as one for each input.
    The sizes of `workload` decide which mistakes can show (`Control.shows`). Flags and choices are
    fixed at their default. Dimensions that the output lacks count as summed."""
    for name, attribute in signature.attributes.items():
        settings: dict[str, Any] = {"attribute": name}
        if attribute.kind == "number":
            yield Control(f"wrong {name}", "wrong_number", settings=settings)
            continue
        default = attribute.default_value
        settings |= {"to": default, "number": attribute.as_number(default)}
        shows = workload.attributes.get(name, default) != default
        yield Control(f"drops {name}", "set_attribute", shows=shows, settings=settings)
    inputs, output_dimensions = signature.inputs, signature.output_dimensions.split()
    shapes = {name: _shape(dimensions, workload) for name, dimensions in inputs.items()}
    for number, name in enumerate(inputs):
        yield Control(f"ignores {name}", "ignore", settings={"input": number})
    for (first, name), (second, other) in itertools.combinations(enumerate(inputs), 2):
        if len(shapes[name]) == len(shapes[other]):
            shows, settings = shapes[name] == shapes[other], {"inputs": [first, second]}
            yield Control(f"swaps {name} and {other}", "swap", shows=shows, settings=settings)
    yield Control("low precision", "round_inputs")
    summed_axes: dict[str, list[list[int]]] = {}  # Dimension to its axes in each input.
    for number, dimensions in enumerate(inputs.values()):
        for axis, name in enumerate(dimensions.split()):
            if name not in output_dimensions:
                summed_axes.setdefault(name, [[] for _ in inputs])[number].append(axis)
    for name, axes in summed_axes.items():
        shows = workload.sizes[name] > 1
        yield Control(f"cuts {name}", "cut", shows=shows, shortens=[name], settings={"axes": axes})
    for axis, name in enumerate(output_dimensions):
        on_axis: dict[str, Any] = {"shows": workload.sizes[name] > 1, "settings": {"axis": axis}}
        yield Control(f"skips tail of {name}", "leave_tail", ("NaN",), **on_axis)
        yield Control(f"zeros in tail of {name}", "zero_tail", **on_axis)
        yield Control(f"error grows along {name}", "growing", **on_axis)
    yield Control(ZEROS_CONTROL, "zeros")
    yield Control("constant", "mean")
    if len(output_dimensions) > 1:
        shows = all(workload.sizes[name] > 1 for name in output_dimensions[-2:])
        yield Control("transposed", "transpose", shows=shows)
    yield Control("one element off", "one_off")
    yield Control("one element NaN", "one_nan", ("NaN",))
    yield Control("nothing written", "nothing", ("NaN",))
    # From here on they write to wrong memory, or cheat.
    cheat: dict[str, Any] = {"theme": "cheat"}
    in_python: dict[str, Any] = {"theme": "cheat", "kinds": ("python",)}
    unequal: Causes = ("two outputs", *WRONG_CAUSES)  # 16 roundings may exceed a tolerance.
    yield Control("writes beyond the end", "beyond", ("outside",), kinds=("c_abi",))
    yield Control("writes before the beginning", "before", ("outside",), kinds=("c_abi",))
    yield Control("stale output", "stale", **cheat)
    yield Control("skips every other call", "skip_every_other", ("NaN",), **cheat)
    yield Control("cached by address", "by_address", **cheat)
    yield Control("not deterministic", "vary", ("two outputs",), "cheat", kinds=("c_abi",))
    yield Control("not deterministic", "vary", unequal, settings={"roundings": 16}, **in_python)
    yield Control("gives a promise", "give_promise", ("wrong result",), **in_python)
    yield Control("gives another type", "other_type", ("wrong result",), **in_python)
    yield Control("keeps its result", "keep_result", **in_python)
    unwritten = "leaves every other result unwritten"
    yield Control(unwritten, "leave_unwritten", MISSING_CAUSES, **in_python)
    output_shape = _shape(signature.output_dimensions, workload)
    for number, (name, shape) in enumerate(shapes.items()):
        of_input: dict[str, Any] = {"settings": {"input": number}}
        yield Control(f"writes to {name}", "write_input", ("changed input",), **cheat, **of_input)
        if len(shape) == len(output_shape):
            of_input["shows"] = shape == output_shape
            yield Control(f"gives {name} back", "give_input", **in_python, **of_input)


def _shape(dimensions: str, workload: Workload) -> list[int]:
    """Sizes of these dimensions (`N M`) on a workload."""
    return [workload.sizes[name] for name in dimensions.split()]


def controls_by_shape(inputs: Sequence[Sequence[int]], output: Sequence[int]) -> Iterator[Control]:
    """Controls of a Python variant without named dimensions. `inputs`, `output`: shapes of the
    floating-point inputs and of the first such output. Dimensions are named as in `input0_1`."""
    sizes = {f"axis{axis}": size for axis, size in enumerate(output)}
    output_text, input_texts = " ".join(sizes), dict[str, str]()
    for number, shape in enumerate(inputs):
        named_sizes = {f"input{number}_{axis}": size for axis, size in enumerate(shape)}
        sizes |= named_sizes
        input_texts[f"input{number}"] = " ".join(named_sizes)
    texts: dict[str, Any] = {"inputs": input_texts, "outputs": {OUTPUT: output_text}}
    signature = Signature.model_construct(**texts, attributes={})
    for control in controls(signature, Workload(name="shapes", sizes=sizes, dtype="float32")):
        if "python" in control.kinds and not control.shortens:
            # A part that is not computed may hold any wrong value, not only NaN.
            is_nan = control.expected == ("NaN",)
            yield replace(control, expected=WRONG_CAUSES) if is_nan else control


def applicable_controls(
    bench: Bench, honest: Side, workloads: Sequence[Workload]
) -> Waiting[list[tuple[Control, list[Workload]]]]:
    """One control of each kind (`make`), with a few workloads to try it on, each with two seeds. It
    is the first of its kind whose mistake shows on a workload; if none does, the list is empty."""
    operations_of, dtype = partial(count_operations, bench.target), usual_dtype(bench, honest)
    usable = [workload for workload in workloads if is_supported(honest, workload)]
    usable = [workload for workload in usable if workload.dtype == dtype]
    usable = sorted(filter(operations_of, usable), key=operations_of)  # Of at least one operation.
    if bench.target.is_plain:
        usable = [workload for workload in usable if workload.values == "normal"]
        # The smallest of those that are large enough come first; the too small ones come last.
        usable.sort(key=lambda workload: operations_of(workload) < LARGE_ENOUGH_OPERATIONS)
    else:
        usable = usable[:WORKLOADS_PER_CONTROL]
    by_name: dict[str, tuple[Control, list[Workload]]] = {}
    for workload in usable:
        listed = [*controls(bench.target.signature, workload)] if bench.target.is_plain else []
        if not bench.target.is_plain:  # By the shapes of the judge's inputs and outputs.
            try:
                yield from bench.prepare_answer(workload)
            except Unjudged:
                continue
            call = bench.make_call(workload, "judge")
            inputs = [tensor.shape for tensor in call.inputs if tensor.dtype in FLOATS]
            outputs = [tensor.shape for tensor in call.outputs if tensor.dtype in FLOATS]
            listed = [*controls_by_shape(inputs, outputs[0])] if inputs and outputs else []
        for control in (control for control in listed if honest.kind in control.kinds):
            _, shows_on = by_name.setdefault(control.name, (control, []))
            if not control.shows or workload in shows_on or len(shows_on) == WORKLOADS_PER_CONTROL:
                continue
            sizes = dict(workload.sizes)
            for name in control.shortens:
                sizes[name] -= max(1, sizes[name] // 8)
            if is_supported(honest, workload.model_copy(update={"sizes": sizes})):
                shows_on.append(workload)
    trial_by_kind: dict[str, tuple[Control, list[Workload]]] = {}
    for control, shows_on in by_name.values():
        if control.make == "vary" and not honest.deterministic:
            continue  # The variant's outputs differ from call to call by themselves.
        if control.make not in trial_by_kind or not trial_by_kind[control.make][1]:
            seeded = []
            for workload, step in itertools.product(shows_on, range(SEEDS_PER_WORKLOAD)):
                seeded.append(workload.model_copy(update={"seed": workload.seed + step}))
            trial_by_kind[control.make] = control, seeded
    return list(trial_by_kind.values())


@dataclass
class Proof:
    """The results of the controls of some variants."""

    results: list[ControlResult] = field(default_factory=list)
    inapplicable: list[str] = field(default_factory=list)  # Sentences on controls.
    untried: list[str] = field(default_factory=list)  # Controls for which no time was left.


def prove(
    bench: Bench, honest: Side, workloads: Sequence[Workload], deadline: float = inf
) -> Waiting[Proof]:
    """Verify honest candidates and then all controls of one variant, on a few workloads. All share
    one process: each call says which mistake to inject. Controls not finished at the `deadline`
    (monotonic clock) are untried. Workloads that cannot be judged are skipped."""
    proof, target = Proof(), bench.target
    # With a fixed number of threads its outputs repeat bit by bit.
    worker = KeptWorker(bench, replace(honest, threads=honest.threads or bench.threads))
    candidates = yield from applicable_controls(bench, honest, workloads)
    if not candidates:
        lack = "no floating-point numbers among both inputs and outputs"
        if target.is_plain:
            lack = "no workload that it takes has its usual type, normal values and anything to do"
        proof.inapplicable.append(f"every control: {lack}")
    for control in (control for control, shows_on in candidates if not shows_on):
        proof.inapplicable.append(f"{control.name}: no workload on which it could show")
    every_workload = distinct_workloads(itertools.chain(*(shows_on for _, shows_on in candidates)))
    trials: list[tuple[Control, SideChecker]] = []
    for control, shows_on in ((HONEST, every_workload), (HONEST_COPY, every_workload), *candidates):
        if not shows_on:
            continue
        compares = control.theme != "value"
        job = Job(worker.side, shows_on, layouts=False, fail_fast=True, compares_calls=compares)
        if control.theme != "honest":  # Only an honest call may be a process's first, and compile.
            job = replace(job, call_limit_s=CALL_LIMIT_S)
        if control.make:  # Otherwise it is the honest variant itself.
            side = replace(worker.side, name=f"{worker.side.name} {control.name}")
            mistake = control.mistake_settings(target, shows_on[0].dtype)
            job = replace(job, side=side, mistake=mistake)
        trials.append((control, SideChecker(job, worker)))
    is_complete = True
    try:
        for workload in every_workload:
            checkers = [checker for _, checker in trials if checker.has_to_check(workload)]
            try:
                if checkers and is_complete:
                    yield from bench.prepare_answer(workload)
            except Unjudged:
                for checker in checkers:
                    checker.workload_keys.discard(workload_key(workload))
            for checker in checkers:
                is_complete = is_complete and monotonic() < deadline
                if is_complete:
                    yield from checker.check(workload)
    finally:
        worker.close()
    _conclude(proof, trials, is_complete=is_complete)
    return proof


def _conclude(
    proof: Proof, trials: Sequence[tuple[Control, SideChecker]], *, is_complete: bool
) -> None:
    """Add each control's result to the proof, or why it does not count. The honest variant's trial
    is the first. `is_complete`: whether time was left for all checks."""
    # If the control that returns an earlier output passed, other values have the same answer.
    stale = [trial for control, trial in trials if control.make == "stale"]
    stale_passed = any(not trial.checks.first_failure for trial in stale)
    honest_digests: dict[str, tuple[str, ...]] = {}  # By the honest variant, else by its copy.
    for _, trial in trials[:2]:
        for key, outputs in trial.digests_by_call.items():
            honest_digests.setdefault(key, outputs)
    for control, trial in trials:
        failure, digests = trial.checks.first_failure, trial.digests_by_call.items()
        equals_honest = all(honest_digests.get(key, outputs) == outputs for key, outputs in digests)
        is_cheat, is_plain = control.theme == "cheat", trial.bench.target.is_plain
        returns_old_values = is_cheat and control.expected == WRONG_CAUSES  # Others damage memory.
        may_be_harmless = control.theme == "value" or (is_cheat and not is_plain)
        if failure is None and not is_complete:
            proof.untried += [] if control.theme == "honest" else [control.name]
        elif failure is None and stale_passed and returns_old_values:
            proof.inapplicable.append(f"{control.name}: other values have the same answer")
        elif failure is None and equals_honest and may_be_harmless:
            proof.inapplicable.append(f"{control.name}: makes no difference to this function")
        else:
            result = ControlResult(
                name=control.name,
                kind=control.theme,
                base=trial.worker.side.name,
                workload=failure.workload.name if failure else "",
                killed=failure is not None,
                reason=failure.message if failure else "",
                cause=failure.cause if failure else "",
                expected="|".join(control.expected),
                right_reason=failure is not None and failure.cause in control.expected,
                # If it passed, perhaps because its error is within the tolerance.
                distinguishable=failure is not None or control.make not in MAY_BE_TOLERATED,
            )
            proof.results.append(result)


class ProofTerms(ResultLifetime):
    """Arguments of `kernel.prove_gate`."""

    python: bool = False
    """Whether to try Python variants next to compiled ones; importing torch takes many seconds."""


def prove_gate(context: Context, arguments: ProofTerms) -> RunningAction[GateOutput]:
    """Mutation-test the gate: it must reject all controls of the variants and pass honest ones. It
    tries Python variants if `arguments.python`, or if none is compiled, and names those untried."""
    bench, variants, target = context.bench, context.task.variants, context.bench.target
    in_python = arguments.python or not bench.compiled_variants(variants)
    sources_hash = context.task.sources_hash if in_python else ""  # It may compile own files.
    inputs_digest = steps.dependency_hash(context, "kernel.prove_gate", sources_hash)
    depends_on = GATE_DEPENDS_ON if not in_python else "the gate and the target's files"
    stored_output = steps.reuse_result(context, GateOutput, inputs_digest, arguments, depends_on)
    if stored_output:  # An earlier session proved the same.
        return Result(stored_output, idle=not stored_output.controls)
    bench.warm_up()
    sides, failures = yield from build_sides(context, variants)
    if failures:
        message = f"no build: {failures[0].message}"
        return Result(GateOutput(ok=False, message=message, hint=failures[0].hint))
    compiled = [name for name, side in sides.items() if side.kind == "c_abi"]
    proof, start_time = Proof(), monotonic()
    tried_variants, not_exercised = list[str](), list[str]()
    unjudged = unjudged_workloads(context)
    for variant in variants if arguments.python else compiled or variants:
        if tried_variants and monotonic() - start_time > context.budget_s:  # One always is tried.
            break
        tried_variants.append(variant)
        side, deadline = sides[variant], start_time + PROOF_SHARE * context.kill_after_s
        dtype = usual_dtype(bench, side)
        all_workloads = expand_sets(target, target.workloads, dtype, context.task.seed)
        workloads = [workload for workload in all_workloads if workload.name not in unjudged]
        if reason := _explain_no_controls(target, side, workloads):
            proof.inapplicable.append(f"every control of {variant}: {reason}")
            continue
        variant_proof = yield from prove(bench, side, workloads, deadline)
        proof.results += variant_proof.results
        proof.inapplicable += [f"{variant} {reason}" for reason in variant_proof.inapplicable]
        proof.untried += [f"{variant}: {name}" for name in variant_proof.untried]
    for variant in (variant for variant in variants if variant not in tried_variants):
        command = context.command("kernels", "prove-gate", variant)
        not_exercised.append(f"the gate's controls of {variant}: `{command}` tries them")
    if proof.untried:
        examples = ", ".join(proof.untried[:3]) + (", ..." if len(proof.untried) > 3 else "")
        untried = f"{len(proof.untried)} controls of the gate, for want of time ({examples})"
        not_exercised.append(f"{untried}: `{context.command('kernels', 'prove-gate')}` has more")
    output = _score(proof)
    if not output.total:
        reasons = "; ".join(output.not_applicable) or "no variant"
        not_exercised.append(f"the gate's controls: {reasons}")
    update = {"not_exercised": tuple(not_exercised), "rests_on": inputs_digest}
    is_idle = not (output.controls or proof.untried)
    return Result(output.model_copy(update=update), idle=is_idle)


def _explain_no_controls(target: Target, side: Side, workloads: Sequence[Workload]) -> str:
    """Why no control can be made from a variant; empty if some can."""
    variant = target.variants[side.name]
    if side.kind == "command":
        return "it is a program of its own"
    if isinstance(variant, PythonVariant) and variant.passing == "passed":
        return "its outputs are passed to it"
    if target.signature.updates:
        return "it changes its inputs in place"
    if not target.is_plain and not isinstance(variant, PythonVariant):
        return f"none is made of a compiled variant, as {target.why_not_plain}"
    others = [name for name, dtype in target.signature.types.items() if dtype not in FLOATS]
    needs_floats = side.kind != "python" or any(name in target.signature.outputs for name in others)
    if target.is_plain and others and needs_floats:
        return f"controls are made of floating-point numbers, and {', '.join(others)} holds others"
    supported = [workload for workload in workloads if is_supported(side, workload)]
    if not any(prod(workload.sizes.values()) for workload in supported):
        return "it takes no workload that is not empty"
    return ""


def _score(proof: Proof) -> GateOutput:
    """The step's output from the results of all controls: score as message, next action as hint."""
    injected = [result for result in proof.results if result.kind != "honest"]
    killed = [result for result in injected if result.killed]
    survivors = [result for result in injected if not result.killed and result.distinguishable]
    honest = [result for result in proof.results if result.kind == "honest"]
    rejected_honest = [result for result in honest if result.killed]
    indistinguishable = [result.full_name for result in proof.results if not result.distinguishable]
    survivor_names, total = [result.full_name for result in survivors], len(killed) + len(survivors)
    message, hint = f"the gate rejected {len(killed)} of {total} injected bugs and cheats", None
    if survivors:
        message += f"; it accepted {', '.join(survivor_names)}"
        hint = "the gate does not see this mistake: narrow the tolerance, or add a workload for it"
        if any(result.name == ZEROS_CONTROL for result in survivors):
            hint = "the tolerance is wider than every output, so that zeros pass: narrow it"
    elif rejected_honest:
        result = rejected_honest[0]
        message += f"; an honest candidate was rejected: {result.full_name}: {result.reason}"
        hint = "the gate is too strict for this target: look at tolerance, reference and plain"
    elif indistinguishable:
        message += f"; not distinguishable here: {', '.join(indistinguishable)}"
        names = ", ".join(indistinguishable[:3])
        hint = f"no input of the target tells {names}: add a workload with other values or sizes"
    elif not total:
        reason = "was tried, for want of time" if proof.untried else "can be made of these variants"
        message = "; ".join((f"no control {reason}", *proof.inapplicable))
    return GateOutput(
        ok=not survivors and not rejected_honest,
        message=message,
        hint=hint,
        controls=tuple(proof.results),
        killed=len(killed),
        total=total,
        survivors=tuple(survivor_names),
        rejected=tuple(f"{r.full_name}: {r.reason}" for r in rejected_honest),
        wrong_reasons=tuple(f"{r.full_name}: {r.reason}" for r in killed if not r.right_reason),
        not_applicable=tuple(proof.inapplicable),
        indistinguishable=tuple(indistinguishable),
    )


def trust_sentences(finished: Sequence[Finished]) -> tuple[str, ...]:
    """The report's sentences on how far to trust a session: each control with its outcome."""
    comparisons, lines = outputs_of(finished, CompareOutput), list[str]()
    for gate in (output for output in outputs_of(finished, GateOutput) if output.total):
        variants = ", ".join(dict.fromkeys(control.base for control in gate.controls))
        parts = [
            f"the gate rejected {gate.killed} of {gate.total} copies of {variants}, "
            "each with an injected bug or cheat"
        ]
        if gate.survivors:
            parts.append(f"it accepted {', '.join(gate.survivors)}")
        if gate.indistinguishable:
            names = ", ".join(gate.indistinguishable)
            parts.append(f"not told by any input of the target: {names}")
        if gate.wrong_reasons:
            parts.append(f"{len(gate.wrong_reasons)} of them for another reason than theirs")
        if gate.taken_from:
            parts.append(f"taken from {gate.taken_from}: what it depends on has not changed")
        lines.append("; ".join(parts))
    for properties in outputs_of(finished, PropertiesOutput):
        checks = [check for check in properties.checks if check.status != "inapplicable"]
        failed_checks = [check for check in checks if check.status == "failed"]
        if failed_checks:
            counts = f"{len(failed_checks)} of {len(checks)}"
            lines.append(f"properties: {counts} checks failed, first {failed_checks[0].message}")
        elif checks:
            names = ", ".join(dict.fromkeys(check.property for check in checks))
            count = say.count(len(checks), "check")
            lines.append(f"properties that need no reference ({names}): all hold, in {count}")
    for output in outputs_of(finished, SanitizeOutput):
        failing = [run for run in output.runs if run.status == "found"]
        lines += [f"compute-sanitizer, {run.tool}: {run.summary_text}" for run in failing]
        if output.clean:
            tools = ", ".join(run.tool for run in output.runs if run.variant == output.clean[0])
            most = max(len(run.workloads) for run in output.runs if run.variant in output.clean)
            calls = say.count(most, "small call")
            clean = f"{say.listed_words(output.clean)} clean, in {calls} each"
            lines.append(f"compute-sanitizer {output.version} ({tools}): {clean}")
    measured = outputs_of(finished, MeasureOutput)
    timed: list[MeasureOutput | CompareOutput] = [*measured, *comparisons]
    if checked_outputs := sum(output.outputs for output in timed):
        choice = "one a side, workload and round, drawn at random"
        checked = f"{checked_outputs} outputs, {choice}, held against the reference"
        lines.append(f"timed calls: {checked}")
    lines += dict.fromkeys(f"warning: {text}" for output in timed for text in output.warnings)
    for comparison in comparisons:
        for null in comparison.null_controls:
            results = [f"same on {null.same}"] if null.same else []
            results += [f"inconclusive on {null.inconclusive}"] if null.inconclusive else []
            workloads = say.count(null.comparisons, "workload")
            counts = f"{', '.join((*results, *null.false))} of {workloads}"
            scatter = ""
            if null.block_sd is not None:
                scatter = f"; a block scatters by {say.significant(100 * null.block_sd, 2)} % here"
            lines.append(f"null control, {null.variant} against itself: {counts}{scatter}")
    for comparison in comparisons:
        for control in comparison.positive_controls:
            success = f"seen after {say.count(control.blocks, 'block')}"
            outcome = success if control.verdict == "slower" else f"not seen: {control.reason}"
            slowed = f"{control.variant} made {control.slowdown:.0%} slower on {control.workload}"
            lines.append(f"positive control, {slowed}: {outcome}")
    return tuple(lines)


def known_good_table(verdicts: Iterable[Verdict]) -> Table | None:
    """A table of variants against known-good builds; None if empty. Evidence ends at 1e6 : 1."""
    heads = ("Variant", "Workload", ">Ratio [99 % interval]", ">Evidence", "Verdict")
    rows = []
    for verdict in verdicts:
        if not isinstance(verdict, SpeedVerdict) or verdict.against != "known_good":
            continue
        interval = ", ".join(say.plain_ratio(bound, 3) for bound in verdict.interval)
        evidence, value = "", verdict.e_value
        if value is not None:
            evidence = f"{value:,.0f} : 1" if value < 1e6 else "over 1,000,000 : 1"
        ratio = f"{say.speedup_text(verdict.ratio, 3)} [{interval}]"
        rows.append((verdict.variant, verdict.workload, ratio, evidence, verdict.verdict))
    return drop_empty_columns(heads, tuple(rows))
