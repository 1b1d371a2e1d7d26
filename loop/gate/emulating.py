"""Verify CUDA kernels without a GPU: an emulator runs them on the CPU."""

from loop.gate.kernel import (
    compile_all,
    describe_unverified_sets,
    distinct_workloads,
    planned_check_sets,
    unplanned_sets,
    workloads,
)
from loop.gate.verification import describe_untaken_workloads, explain_early_end, verification_output
from loop.gate.verify import Job, verify
from loop.model.measurement import BASELINE
from loop.model.output import VerifyOutput
from loop.model.target import Target, Workload
from loop.model.workloads import evaluate_work
from loop.steps.context import Context, Result, RunningAction
from loop.steps.reused_results import ResultLifetime, dependency_hash, reuse_result

MOST_FLOPS = 1e9
"""Most operations of an emulated workload; a scalar kernel takes several seconds for this."""


def emulate(context: Context, arguments: ResultLifetime) -> RunningAction[VerifyOutput]:
    """Verify the emulated variants on the plan's workloads in GPU types, against float64. Passes if none is
    selected. The output names workloads that are too large for the emulator as not exercised."""
    bench, timed_sets, selected = context.bench, context.task.plan.workloads, context.task.emulated
    if not selected:
        if not bench.target.emulated_variants:
            return Result(VerifyOutput(ok=True, message="no variant can be emulated"), idle=True)
        reason = "they run on the GPU here" if bench.device == "cuda" else "not selected"
        text = f"{', '.join(bench.target.emulated_variants)} under the emulator: {reason}"
        return Result(VerifyOutput(ok=True, message=text, not_exercised=(text,)), idle=True)
    builds, failures = yield from compile_all(context, bench.emulated_variants(selected))
    inputs_digest = dependency_hash(context, "kernel.emulate", *(build.build_id for build in builds))
    stored_output = None if failures else reuse_result(context, VerifyOutput, inputs_digest, arguments)
    if stored_output is not None:
        return Result(stored_output)
    all_sets = [*timed_sets, *planned_check_sets(context)]
    planned = distinct_workloads(workloads(context, all_sets, device="cuda"))
    checked = [w for w in planned if not is_too_large_to_emulate(bench.target, w)]
    jobs = [Job(bench.make_side(build.variant, build, emulated=True), checked) for build in builds]
    timed_names = {workload.name for workload in workloads(context, timed_sets, device="cuda")}
    control_workloads = [workload for workload in checked if workload.name in timed_names]
    control_job = Job(bench.make_side(BASELINE), control_workloads, layouts=False)
    *emulated_checks, control = yield from verify(bench, [*jobs, control_job])
    names = [build.variant for build in builds]
    unplanned = distinct_workloads(workloads(context, unplanned_sets(context), device="cuda"), beyond=planned)
    not_exercised = [f"{name} under the emulator: it has no build" for name in selected if name not in names]
    not_exercised += [f"{w.name} under the emulator: too much work for it" for w in planned if w not in checked]
    unverified = describe_unverified_sets(context, names, unplanned, "cuda")
    not_exercised += [f"under the emulator, {text}" for text in unverified]
    not_exercised += [text for checks in emulated_checks for text in explain_early_end(checks)]
    output = verification_output(
        context,
        [checks.model_copy(update={"emulated": True}) for checks in emulated_checks],
        control,
        selected,
        failures=failures,
        not_exercised=not_exercised,
        untaken={job.side.name: describe_untaken_workloads(job.side, checked) for job in jobs},
    )
    return Result(output.model_copy(update={"rests_on": inputs_digest}))


def is_too_large_to_emulate(target: Target, workload: Workload) -> bool:
    """Whether a workload has too many operations for the emulator, by `flops` of target.yaml."""
    return (evaluate_work(target.flops, workload) or 0.0) > MOST_FLOPS
