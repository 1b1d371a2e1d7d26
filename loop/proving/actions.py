"""The action `kernel.prove_gate`: the gate's score, and what the report says of controls."""

from collections.abc import Iterable, Sequence
from math import prod
from time import monotonic

from loop.base.stats import plain_ratio, speedup_text
from loop.gate.kernel import build_selected, unjudged_workload_names
from loop.gate.model import PropertiesOutput
from loop.model.dtypes import FLOATS
from loop.model.measurement import NullControl, SpeedVerdict, Verdict
from loop.model.output import MeasureOutput, SanitizeOutput, outputs_of
from loop.model.record import Finished
from loop.model.target import PythonVariant, Target, Workload
from loop.model.workloads import expand_sets, is_supported
from loop.proving import prove
from loop.proving.prove import ZEROS_CONTROL, GateOutput, Proof
from loop.report import format as say
from loop.report.markdown import Table, drop_empty_columns
from loop.steps.context import Context, Result, RunningAction
from loop.steps.reused_results import ResultLifetime, dependency_hash, reuse_result
from loop.timing.against_known_good import CompareOutput
from loop.workers.bench import Side

PROOF_SHARE = 0.5
"""Share of the step's kill time after which controls stop; the untried ones are reported."""


class ProofTerms(ResultLifetime):
    """Arguments of `kernel.prove_gate`."""

    python: bool = False
    """Whether to try Python variants next to compiled ones; importing torch takes many seconds."""


def prove_gate(context: Context, arguments: ProofTerms) -> RunningAction[GateOutput]:
    """Mutation-test the gate: it must reject all controls of the variants and pass honest ones. Python
    variants are tried if `arguments.python`, or if none is compiled. The output names those without time."""
    bench, variants, target = context.bench, context.task.variants, context.bench.target
    in_python = arguments.python or not bench.compiled_variants(variants)
    sources_hash = context.task.sources_hash if in_python else ""  # It may compile files of its own.
    inputs_digest = dependency_hash(context, "kernel.prove_gate", sources_hash)
    stored_output = reuse_result(context, GateOutput, inputs_digest, arguments)
    if stored_output is not None:  # An earlier session proved the same.
        return Result(stored_output)
    bench.warm_up()
    builds, failures = yield from build_selected(context)
    if failures:
        return Result(GateOutput(ok=False, message=f"no build: {failures[0].message}", hint=failures[0].hint))
    build_by_variant = {build.variant: build for build in builds}
    compiled = [build.variant for build in builds if build.compiled]
    proof, start_time, tried_variants = Proof(), monotonic(), list[str]()
    unjudged = unjudged_workload_names(context)
    for variant in variants if arguments.python else compiled or variants:
        if tried_variants and monotonic() - start_time > context.budget_s:  # The first is tried in any case.
            break
        tried_variants.append(variant)
        side = bench.make_side(variant, build_by_variant.get(variant))
        all_workloads = expand_sets(target, target.workloads, prove.control_dtype(bench, side), context.task.seed)
        workloads = [workload for workload in all_workloads if workload.name not in unjudged]
        if reason := _explain_no_controls(target, side, workloads):
            proof.inapplicable.append(f"every control of {variant}: {reason}")
        else:
            deadline = start_time + PROOF_SHARE * context.kill_after_s
            variant_proof = yield from prove.prove(bench, side, workloads, deadline)
            proof.results += variant_proof.results
            proof.inapplicable += [f"{variant} {reason}" for reason in variant_proof.inapplicable]
            proof.untried += [f"{variant}: {name}" for name in variant_proof.untried]
    output, not_exercised = _score(proof), list[str]()
    for variant in (variant for variant in variants if variant not in tried_variants):
        command = context.command("kernels", "prove-gate", variant)
        not_exercised.append(f"the gate's controls of {variant}: `{command}` tries them")
    if proof.untried:
        examples = ", ".join(proof.untried[:3]) + (", ..." if len(proof.untried) > 3 else "")
        untried = f"{len(proof.untried)} controls of the gate, for want of time ({examples})"
        not_exercised.append(f"{untried}: `{context.command('kernels', 'prove-gate')}` has more")
    if not output.total:
        not_exercised.append(f"the gate's controls: {'; '.join(output.not_applicable) or 'no variant'}")
    return Result(output.model_copy(update={"not_exercised": tuple(not_exercised), "rests_on": inputs_digest}))


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
        return "controls of compiled variants are made for tensors one by one and one output"
    others = [name for name, dtype in target.signature.types.items() if dtype not in FLOATS]
    if target.is_plain and any(name in target.signature.outputs or side.kind != "python" for name in others):
        return f"controls are made of floating-point numbers, and {', '.join(others)} holds others"
    if not any(prod(workload.sizes.values()) and is_supported(side, workload) for workload in workloads):
        return "it takes no workload that is not empty"
    return ""


def _score(proof: Proof) -> GateOutput:
    """The step's output from the results of all controls: score as message, next action as hint."""
    killed = [result for result in proof.results if result.kind != "honest" and result.killed]
    survivors = [result for result in proof.results if result.is_survivor]
    rejected_honest = [result for result in proof.results if result.kind == "honest" and result.killed]
    indistinguishable = [result.full_name for result in proof.results if not result.distinguishable]
    survivor_names, total = [result.full_name for result in survivors], len(killed) + len(survivors)
    killed_by_chance = [result for result in killed if not result.right_reason]
    message, hint = f"the gate rejected {len(killed)} of {total} injected bugs and cheats", None
    if survivors:
        message += f"; it accepted {', '.join(survivor_names)}"
        hint = "the gate does not see this mistake: narrow the tolerance, or add a workload on which it shows"
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
        rejected=tuple(f"{result.full_name}: {result.reason}" for result in rejected_honest),
        wrong_reasons=tuple(f"{result.full_name}: {result.reason}" for result in killed_by_chance),
        not_applicable=tuple(proof.inapplicable),
        indistinguishable=tuple(indistinguishable),
    )


def trust_sentences(finished: Sequence[Finished]) -> tuple[str, ...]:
    """The report's sentences on how far to trust a session: each control with its outcome."""
    comparisons = outputs_of(finished, CompareOutput)
    lines = [_score_line(output) for output in outputs_of(finished, GateOutput) if output.total]
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
            most_calls = max(len(run.workloads) for run in output.runs if run.variant in output.clean)
            clean = f"{say.listed_words(output.clean)} clean, in {say.count(most_calls, 'small call')} each"
            lines.append(f"compute-sanitizer {output.version} ({tools}): {clean}")
    timed: list[MeasureOutput | CompareOutput] = [*outputs_of(finished, MeasureOutput), *comparisons]
    if checked_outputs := sum(output.outputs for output in timed):
        choice = "one a side, workload and round, drawn at random"
        lines.append(f"timed calls: {checked_outputs} outputs, {choice}, held against the reference")
    lines += dict.fromkeys(f"warning: {text}" for output in timed for text in output.warnings)
    for comparison in comparisons:
        lines += map(_null_control_line, comparison.null_controls)
    for comparison in comparisons:
        for control in comparison.positive_controls:
            success = f"seen after {say.count(control.blocks, 'block')}"
            outcome = success if control.verdict == "slower" else f"not seen: {control.reason}"
            slowed = f"{control.variant} made {control.slowdown:.0%} slower on {control.workload}"
            lines.append(f"positive control, {slowed}: {outcome}")
    return tuple(lines)


def _score_line(output: GateOutput) -> str:
    """The report's sentence on the mutation test of the gate."""
    variants = ", ".join(dict.fromkeys(control.base for control in output.controls))
    copies = f"{output.killed} of {output.total} copies of {variants}, each with an injected bug or cheat"
    line = f"the gate rejected {copies}"
    if output.survivors:
        line += f"; it accepted {', '.join(output.survivors)}"
    if output.indistinguishable:
        line += f"; not told by any input of the target: {', '.join(output.indistinguishable)}"
    if output.wrong_reasons:
        line += f"; {len(output.wrong_reasons)} of them for another reason than theirs"
    if output.taken_from:
        line += f"; taken from {output.taken_from}: nothing that it depends on has changed"
    return line


def _null_control_line(control: NullControl) -> str:
    """The report's sentence on a null control: a variant timed against itself."""
    results = [f"same on {control.same}"] if control.same else []
    results += [f"inconclusive on {control.inconclusive}"] if control.inconclusive else []
    counts = f"{', '.join((*results, *control.false))} of {say.count(control.comparisons, 'workload')}"
    line = f"null control, {control.variant} against itself: {counts}"
    if control.block_sd is not None:
        line += f"; a block scatters by {say.significant(100 * control.block_sd, 2)} % here"
    return line


def known_good_table(verdicts: Iterable[Verdict]) -> Table | None:
    """A table of variants against their known-good builds; None if empty. Evidence ends at 1,000,000 : 1."""
    heads = ("Variant", "Workload", ">Ratio [99 % interval]", ">Evidence", "Verdict")
    rows = []
    for verdict in verdicts:
        if not isinstance(verdict, SpeedVerdict) or verdict.against != "known_good":
            continue
        interval = ", ".join(plain_ratio(bound, 3) for bound in verdict.interval)
        evidence, value = "", verdict.e_value
        if value is not None:
            evidence = f"{value:,.0f} : 1" if value < 1e6 else "over 1,000,000 : 1"
        ratio = f"{speedup_text(verdict.ratio, 3)} [{interval}]"
        rows.append((verdict.variant, verdict.workload, ratio, evidence, verdict.verdict))
    return drop_empty_columns(heads, tuple(rows))
