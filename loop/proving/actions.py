"""The action `kernel.prove_gate`: the gate's score, and what the report says of controls."""

from collections.abc import Iterable, Sequence
from math import prod
from time import monotonic

from loop.base.stats import plain_ratio, times
from loop.gate.kernel import builds, unjudged_names
from loop.gate.model import PropertiesOutput
from loop.model.measurement import NullControl
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished
from loop.model.sanitizing import SanitizeOutput
from loop.model.target import PythonVariant, Target, Workload
from loop.model.verdict import SpeedVerdict, Verdict
from loop.model.workloads import expand_sets, is_supported
from loop.proving import prove
from loop.proving.prove import GROSS, GateOutput, Proof
from loop.report import format as say
from loop.report.markdown import Table, columns, filled_table
from loop.steps.context import Context, Result, RunningAction
from loop.steps.taken_over import Lasting, dependency_hash, reuse_result
from loop.timing.against_known_good import CompareOutput
from loop.workers.bench import Side

PROOF_SHARE = 0.5
"""Share of the step's kill time after which controls stop; the untried ones are reported."""


class ProofTerms(Lasting):
    """Arguments of `kernel.prove_gate`."""

    python: bool = False
    """Whether to try Python variants next to compiled ones; importing torch takes many seconds."""


def prove_gate(context: Context, arguments: ProofTerms) -> RunningAction[GateOutput]:
    """Mutation-test the gate: it must reject all controls of the variants and pass honest ones."""
    bench, variants, target = context.bench, context.task.variants, context.bench.target
    in_python = arguments.python or not bench.compiled_variants(variants)
    sources = context.task.ground if in_python else ""  # A Python variant may compile files of its own.
    ground = dependency_hash(context, "kernel.prove_gate", sources)
    earlier = reuse_result(context, GateOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    bench.warm_up()
    built, failures = yield from builds(context)
    if failures:
        return Result(GateOutput(ok=False, message=f"no build: {failures[0].message}", hint=failures[0].hint))
    by_name = {build.variant: build for build in built}
    compiled = [build.variant for build in built if build.compiled]
    proof, begun, names, unjudged = Proof(), monotonic(), list[str](), unjudged_names(context)
    for name in variants if arguments.python else compiled or variants:
        if names and monotonic() - begun > context.budget_s:
            break
        names.append(name)
        side = bench.make_side(name, by_name.get(name))
        every = expand_sets(target, target.workloads, prove.base_dtype(bench, side), context.task.seed)
        workloads = [workload for workload in every if workload.name not in unjudged]
        if why_none := _why_none(target, side, workloads):
            proof.left_out.append(f"every control of {name}: {why_none}")
        else:
            ends = begun + PROOF_SHARE * context.kill_after_s
            proof.add((yield from prove.prove(bench, side, workloads, ends)), name)
    output, missing = _score(proof), list[str]()
    for name in (name for name in variants if name not in names):
        command = context.command("kernels", "prove-gate", name)
        missing.append(f"the gate's controls of {name}: `{command}` tries them")
    if proof.untried:
        few = ", ".join(proof.untried[:3]) + (", ..." if len(proof.untried) > 3 else "")
        what = f"{len(proof.untried)} controls of the gate, for want of time ({few})"
        missing.append(f"{what}: `{context.command('kernels', 'prove-gate')}` has more")
    if not output.total:
        missing.append(f"the gate's controls: {'; '.join(output.not_applicable) or 'no variant'}")
    return Result(output.model_copy(update={"not_exercised": tuple(missing), "rests_on": ground}))


def _why_none(target: Target, side: Side, workloads: Sequence[Workload]) -> str:
    """Why no control can be made from a variant; empty if some can."""
    if side.kind == "command":
        return "it is a program of its own"
    if isinstance(variant := target.variants[side.name], PythonVariant) and variant.passing == "passed":
        return "its outputs are passed to it"
    if target.signature.updates:
        return "it changes its inputs in place"
    if not target.is_plain and not isinstance(variant, PythonVariant):
        return "controls of compiled variants are made for tensors one by one and one output"
    if not any(prod(workload.sizes.values()) and is_supported(side, workload) for workload in workloads):
        return "it takes no workload that is not empty"
    return ""


def _score(proof: Proof) -> GateOutput:
    """The step's output from the results of all controls: score as message, next action as hint."""
    killed = [result for result in proof.results if result.kind != "honest" and result.killed]
    survived = [result for result in proof.results if result.is_survivor]
    rejected = [result for result in proof.results if result.kind == "honest" and result.killed]
    alike = tuple(result.full_name for result in proof.results if not result.distinguishable)
    survivors, total = tuple(result.full_name for result in survived), len(killed) + len(survived)
    message, hint = f"killed {len(killed)} of {total}", None
    if survived:
        message += f"; survived: {', '.join(survivors)}"
        hint = "the gate does not see this mistake: narrow the tolerance, or add a workload on which it shows"
        if any(result.name == GROSS for result in survived):
            hint = "the tolerance is wider than every output, so that zeros pass: narrow it"
    elif rejected:
        message += f"; an honest candidate was rejected: {rejected[0].full_name}: {rejected[0].reason}"
        hint = "the gate is too strict for this target: look at tolerance, reference and plain"
    elif alike:
        message += f"; not distinguishable here: {', '.join(alike)}"
        hint = f"no input of the target tells {', '.join(alike[:3])}: add a workload with other values or sizes"
    elif not total:
        message = "no control can be made of these variants"
        message = "no control was tried, for want of time" if proof.untried else message
    wrong_reasons = [result for result in killed if not result.right_reason]
    return GateOutput(
        ok=not survived and not rejected,
        message=message,
        hint=hint,
        controls=tuple(proof.results),
        killed=len(killed),
        total=total,
        survivors=survivors,
        rejected=tuple(f"{result.full_name}: {result.reason}" for result in rejected),
        wrong_reasons=tuple(f"{result.full_name}: {result.reason}" for result in wrong_reasons),
        not_applicable=tuple(proof.left_out),
        indistinguishable=alike,
    )


def trust_sentences(finished: Sequence[Finished]) -> tuple[str, ...]:
    """The report's sentences on how far to trust a session: each control with its outcome."""
    compared = outputs_of(finished, CompareOutput)
    lines = [_score_line(output) for output in outputs_of(finished, GateOutput) if output.total]
    for properties in outputs_of(finished, PropertiesOutput):
        tried = [check for check in properties.checks if check.status != "inapplicable"]
        names = dict.fromkeys(check.property for check in tried)
        failed = [check for check in tried if check.status == "failed"]
        if failed:
            lines.append(f"properties: {len(failed)} of {len(tried)} checks failed, first {failed[0].message}")
        elif tried:
            checks = say.count(len(tried), "check")
            lines.append(f"properties that need no reference ({', '.join(names)}): all hold, in {checks}")
    for output in outputs_of(finished, SanitizeOutput):
        lines += [
            f"compute-sanitizer, {run.tool}: {run.summary_text}" for run in output.runs if run.status == "found"
        ]
        tools = [run.tool for run in output.runs if run.variant in output.clean[:1]]
        calls = {len(run.workloads) for run in output.runs if run.variant in output.clean}
        if output.clean:
            clean = f"{say.listed_words(output.clean)} clean, in {say.count(max(calls), 'small call')} each"
            lines.append(f"compute-sanitizer {output.version} ({', '.join(tools)}): {clean}")
    timed: list[MeasureOutput | CompareOutput] = [*outputs_of(finished, MeasureOutput), *compared]
    if judged := sum(output.outputs for output in timed):
        drawn = "one a side, workload and round, drawn at random"
        lines.append(f"timed calls: {judged} outputs, {drawn}, held against the reference")
    warnings = dict.fromkeys(text for output in timed for text in output.warnings)
    lines += [f"warning: {text}" for text in warnings]
    lines += [_null(control) for output in compared for control in output.null_controls]
    for control in (control for output in compared for control in output.positive_controls):
        seen_after = f"seen after {say.count(control.blocks, 'block')}"
        what = f"{control.variant} made {control.slowdown:.0%} slower on {control.workload}"
        when = seen_after if control.is_slowdown_seen else f"not seen: {control.reason}"
        lines.append(f"positive control, {what}: {when}")
    return tuple(lines)


def _score_line(output: GateOutput) -> str:
    """The report's sentence on the mutation test of the gate."""
    bases = ", ".join(dict.fromkeys(control.base for control in output.controls))
    score = f"the gate: killed {output.killed} of {output.total} variants of {bases} made wrong or made to cheat"
    if output.survivors:
        score += f"; survived: {', '.join(output.survivors)}"
    if output.indistinguishable:
        score += f"; not told by any input of the target: {', '.join(output.indistinguishable)}"
    wrong = f"; {len(output.wrong_reasons)} of them for another reason than theirs" if output.wrong_reasons else ""
    earlier = f"; in {output.taken_from}, nothing that it rests on has changed" if output.taken_from else ""
    return f"{score}{wrong}{earlier}"


def _null(control: NullControl) -> str:
    """The report's sentence on a null control: a variant timed against itself."""
    scatter = control.block_sd
    noise = "" if scatter is None else f"; a block scatters by {say.significant(100 * scatter, 2)} % here"
    words = [f"same on {control.same}"] if control.same else []
    words += [f"inconclusive on {control.inconclusive}"] if control.inconclusive else []
    words += list(control.false)
    compared = say.count(control.comparisons, "workload")
    return f"null control, {control.variant} against itself: {', '.join(words)} of {compared}{noise}"


def against_known_good(verdicts: Iterable[Verdict]) -> Table | None:
    """A table of variants against known-good builds; evidence is shown up to 1,000,000 : 1."""
    heads = columns("Variant", "Workload", ">Ratio [99 % interval]", ">Evidence", "Verdict")
    rows = []
    for verdict in verdicts:
        if not isinstance(verdict, SpeedVerdict) or verdict.against != "known_good":
            continue
        interval = ", ".join(plain_ratio(end, 3) for end in verdict.interval)
        evidence, value = "", verdict.e_value
        if value is not None:
            evidence = f"{value:,.0f} : 1" if value < 1e6 else "over 1,000,000 : 1"
        ratio = f"{times(verdict.ratio, 3)} [{interval}]"
        rows.append((verdict.variant, verdict.workload, ratio, evidence, verdict.verdict))
    return filled_table(heads, tuple(rows))
