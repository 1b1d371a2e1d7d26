"""Check properties: relations between a variant's own outputs, as computed by the judge."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from loop.base.processes import Waiting
from loop.calls.call import Call, Refused
from loop.gate.kernel import build_sides, planned_check_sets, workloads
from loop.gate.model import PropertiesOutput
from loop.gate.verify import CALL_LIMIT_S, output_files
from loop.model.dtypes import Device
from loop.model.measurement import NoSpeedVerdict, PropertyCheck
from loop.model.target import Workload
from loop.model.workloads import count_operations, explain_unsupported, is_supported
from loop.report import format as say
from loop.steps import context as steps_context
from loop.steps.context import Context, Result, ResultLifetime, RunningAction
from loop.workers.bench import Bench, KeptWorker, Side
from loop.workers.judge_messages import AdvanceProperty
from loop.workers.messages import Compute
from loop.workers.program import WorkerLost

MOST_CALLS = 64  # Largest number of calls that the judge may ask for to check one property.
MOST_WORK = 4e9
"""Most operations of a workload, if not a type's smallest: 7 calls of 137e9 took 80 s (H100)."""


def properties(context: Context, arguments: ResultLifetime) -> RunningAction[PropertiesOutput]:
    """Try the target's properties on every selected variant, or on emulated ones if none runs here.
    A property relates a variant's own outputs, as in "rows sum to 1"."""
    bench, names = context.bench, context.bench.target.properties
    if not names:
        message = "the target names no properties"
        missing = ("properties: target.yaml names none under `properties`",)
        return Result(PropertiesOutput(ok=True, message=message, not_exercised=missing), idle=True)
    names_to_try = context.task.variants or context.task.emulated
    side_by_name, _ = yield from build_sides(context, names_to_try)
    device: Device = bench.device if context.task.variants else "cuda"
    build_ids = [f"{name} {side.build_id}" for name, side in side_by_name.items()]
    inputs_digest = steps_context.dependency_hash(context, "kernel.properties", *build_ids)
    stored_output = steps_context.reuse_result(context, PropertiesOutput, inputs_digest, arguments)
    if stored_output is not None:  # An earlier session checked the same.
        return Result(stored_output)
    # The timed workloads, the first checked one of each other type; normal values only. Large ones
    # are left out, but for the smallest of each type.
    timed = workloads(context, context.task.plan.workloads, device=device)
    others: dict[str, Workload] = {}
    for workload in workloads(context, planned_check_sets(context), device=device):
        if workload.dtype not in {w.dtype for w in timed} and workload.values == "normal":
            others.setdefault(workload.dtype, workload)
    candidates = [w for w in (*timed, *others.values()) if w.values == "normal"]
    operations_of = partial(count_operations, bench.target)
    largest_first = sorted(candidates, key=operations_of, reverse=True)
    smallest_of = {workload.dtype: workload for workload in largest_first}  # A type's last stays.
    small = [w for w in candidates if operations_of(w) <= MOST_WORK or w == smallest_of[w.dtype]]
    checks: list[PropertyCheck] = []
    for side in side_by_name.values():
        checks += yield from try_properties(bench, side, names, small)
    applicable = {check.property for check in checks if check.status != "inapplicable"}
    unfit = [name for name in names if name not in applicable]
    not_exercised = [f"property {name}: it applies to no workload" for name in unfit]
    reason = "too large to relate several calls of it"
    too_large = [workload for workload in candidates if workload not in small]
    not_exercised += [f"properties on {workload.name}: {reason}" for workload in too_large]
    failed_checks = [check for check in checks if check.status == "failed"]
    held_count, hint = sum(check.status == "holds" for check in checks), None
    message = "nothing to try them on: no variant runs here on their workloads"
    if checks:
        count = len(applicable)
        subject = "1 property holds" if count == 1 else f"{count} properties hold"
        message = f"{subject} in {say.count(held_count, 'check')}"
    if failed_checks:
        failed = failed_checks[0]
        message = f"{failed.variant}: {failed.message}"
        command = context.command("kernels", "verify", failed.variant)
        hint = f"`{command}` shows where it is wrong"
    verdicts = list[NoSpeedVerdict]()
    for check in failed_checks:
        place: dict[str, Any] = {"variant": check.variant, "workload": check.workload}
        place |= {"against": "baseline"}
        verdicts.append(NoSpeedVerdict(**place, verdict="incorrect", reason=check.message))
    output = PropertiesOutput(
        ok=not failed_checks,
        message=message,
        hint=hint,
        verdicts=tuple(verdicts),
        held=held_count,
        checks=tuple(checks),
        not_exercised=tuple(not_exercised),
        rests_on=inputs_digest,
    )
    return Result(output)


def try_properties(
    bench: Bench, side: Side, properties: Sequence[str], workloads: Sequence[Workload]
) -> Waiting[tuple[PropertyCheck, ...]]:
    """Try each property on each workload that the side accepts. LoopError if the judge is lost."""
    checks: list[PropertyCheck] = []
    worker = KeptWorker(bench, side)
    try:
        for workload in (workload for workload in workloads if is_supported(side, workload)):
            yield from bench.prepare_answer(workload)
            for name in properties:
                try:
                    status, message = yield from _try_property(worker, name, workload)
                except (WorkerLost, Refused) as error:
                    status, message = "failed", f"{error} on {workload.name}"
                fields = {"variant": side.name, "property": name, "workload": workload.name}
                fields |= {"status": status, "message": message}
                checks.append(PropertyCheck.model_validate(fields))
    finally:
        worker.close()
    return tuple(checks)


def _try_property(worker: KeptWorker, name: str, workload: Workload) -> Waiting[tuple[str, str]]:
    """Check one property: its status (`holds`, `failed`, `inapplicable`) and a sentence. The judge
    gets each output, and answers with the next call or its finding: None if it does not apply."""
    bench, side = worker.bench, worker.side
    yield from worker.load()
    note = f"{name} of {side.name} on {workload.name}"
    question = AdvanceProperty(bench.make_call(workload, side.name), name, workload.seed % 2**31)
    for _ in range(MOST_CALLS + 1):
        answer = yield from bench.ask_judge(question, CALL_LIMIT_S, note)
        if not isinstance(answer, Call):
            finding = answer
            break
        sizes: dict[str, int] = {}
        shapes = bench.target.signature.inputs.values()
        for dimensions, tensor in zip(shapes, answer.inputs, strict=True):
            sizes |= dict(zip(dimensions.split(), tensor.shape, strict=True))
        changes = {"sizes": {**workload.sizes, **sizes}, "attributes": answer.attributes}
        if explain_unsupported(side, workload.model_copy(update=changes)):
            size_text = " ".join(f"{dimension}{size}" for dimension, size in sizes.items())
            return "inapplicable", f"asks for {size_text}, which is not supported"
        computed = yield from worker.ask(
            Compute(answer), limit_s=CALL_LIMIT_S, note=note, first_call_s=bench.first_call_s
        )
        first_output = output_files(answer, computed)[0]  # One file for each distinct output.
        question = question.replace(output_file=first_output)
    else:
        return "failed", f"{name} asks for more than {MOST_CALLS} calls on {workload.name}"
    if finding is None:
        return "inapplicable", f"does not apply to {workload.name}"
    if not finding.wrong:
        return "holds", f"off by {finding.max_error:.1e} at most"
    wrong_text = f"{finding.wrong:,} of {finding.total:,} elements"
    error_text = f"off by up to {finding.max_error:.2g} (allowed {finding.allowed_error:.1e})"
    message = f"{name} does not hold on {workload.name}: {wrong_text}, {error_text}"
    return "failed", message
