"""Verify CUDA kernels without a GPU: an emulator runs them on the CPU."""

from loop.gate.kernel import (
    compile_all,
    distinct_workloads,
    extra_sets,
    other_sets,
    unverified_sets,
    workloads,
    workloads_beyond,
)
from loop.gate.verification import hung_out, untaken_workloads, verification_output
from loop.gate.verify import Job, verify
from loop.model.measurement import BASELINE
from loop.model.output import VerifyOutput
from loop.model.target import Target, Workload
from loop.model.workloads import evaluate_work
from loop.steps.context import Context, Result, RunningAction
from loop.steps.taken_over import Lasting, dependency_hash, reuse_result

MOST_FLOPS = 1e9
"""Most operations of an emulated workload; a scalar kernel takes several seconds for this."""


def emulate(context: Context, arguments: Lasting) -> RunningAction[VerifyOutput]:
    """Verify the emulated variants on the plan's workloads in GPU types, against float64."""
    bench, timed_sets, meant = context.bench, context.task.plan.workloads, context.task.emulated
    if not meant:
        there = ", ".join(bench.target.emulated_variants)
        why = "they run on the GPU here" if bench.device == "cuda" else "not selected"
        message = "nothing to emulate" if there else "no variant can be emulated"
        missing = [f"{there} under the emulator: {why}"] if there else []
        return Result(VerifyOutput(ok=True, message=message, not_exercised=tuple(missing)))
    built, failures = yield from compile_all(context, bench.emulated_variants(meant))
    ground = dependency_hash(context, "kernel.emulate", *(build.build_id for build in built))
    earlier = None if failures else reuse_result(context, VerifyOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    wanted = distinct_workloads(workloads(context, [*timed_sets, *extra_sets(context)], device="cuda"))
    checked = [workload for workload in wanted if not too_much(bench.target, workload)]
    timed = {workload.name for workload in workloads(context, timed_sets, device="cuda")}
    jobs = [Job(bench.make_side(build.variant, build, emulated=True), checked) for build in built]
    on_timed = [workload for workload in checked if workload.name in timed]
    library = Job(bench.make_side(BASELINE), on_timed, layouts=False)
    *every, control = yield from verify(bench, [*jobs, library])
    names = [build.variant for build in built]
    others = workloads_beyond(wanted, workloads(context, other_sets(context), device="cuda"))
    missing = [f"{name} under the emulator: it has no build" for name in meant if name not in names]
    missing += [f"{w.name} under the emulator: too much work for it" for w in wanted if w not in checked]
    missing += [f"under the emulator, {text}" for text in unverified_sets(context, names, others, "cuda")]
    missing += [text for checks in every for text in hung_out(checks)]
    output = verification_output(
        [checks.model_copy(update={"emulated": True}) for checks in every],
        control,
        meant,
        seed=context.task.seed,
        command=context.command,
        failures=failures,
        missing=missing,
        untaken={job.side.name: untaken_workloads(job.side, checked) for job in jobs},
    )
    return Result(output.model_copy(update={"rests_on": ground}))


def too_much(target: Target, workload: Workload) -> bool:
    """Whether a workload has too many operations for the emulator, by `flops` of target.yaml."""
    return (evaluate_work(target.flops, workload) or 0.0) > MOST_FLOPS
