"""Kernels made for a GPU, run by the emulator on the processor: as right or wrong as they would be there."""

from loop.base.expressions import Expression
from loop.gate.kernel import compile_all, distinct, extra_sets, workloads
from loop.gate.verification import Verification, untaken
from loop.gate.verify import Job, verify
from loop.model.measurement import BASELINE
from loop.model.output import VerifyOutput
from loop.model.target import Target, Workload
from loop.model.workloads import formula_values
from loop.steps.context import Context, NoArguments, Result, Working

MOST_FLOPS = 1e9
"""Work that the emulator is not asked to do: a scalar kernel takes several seconds for this much."""


def emulate(context: Context, arguments: NoArguments) -> Working[VerifyOutput]:
    """Every variant that the emulator can run, on every workload of the plan against float64, in a GPU's types."""
    if not context.task.emulated:
        return Result(_nothing(context))
    bench = context.bench
    made, failures = yield from compile_all(context, bench.emulations(context.task.emulated))
    sets = [*context.task.plan.workloads, *extra_sets(context)]
    wanted = distinct(workloads(context, sets, device="cuda"))
    checked = [one for one in wanted if work_of(bench.target, one) <= MOST_FLOPS]
    names = {one.name for one in workloads(context, context.task.plan.workloads, device="cuda")}
    timed = [one for one in checked if one.name in names]
    jobs = [Job(bench.side(one.variant, one, emulated=True), checked) for one in made]
    *found, control = yield from verify(bench, [*jobs, Job(bench.side(BASELINE), timed, layouts=False)])
    marked = tuple(checks.model_copy(update={"emulated": True}) for checks in found)
    built = {one.variant for one in made}
    missing = [
        f"{name} under the emulator: it has no build" for name in context.task.emulated if name not in built
    ]
    missing += [f"{one.name} under the emulator: too much work for it" for one in wanted if one not in checked]
    missing += [text for job in jobs for text in untaken(job.side, checked)]
    rest = (tuple(failures), context.task.emulated, context.task.seed, context.command, tuple(missing))
    whole = Verification(marked, control, *rest)
    return Result(whole.output(VerifyOutput))


def work_of(target: Target, workload: Workload) -> float:
    """Floating-point operations of a workload by the manifest; 0 where it does not say."""
    if target.flops is None:
        return 0.0
    return Expression.parse(target.flops, arithmetic=True).evaluate_number(formula_values(workload))


def _nothing(context: Context) -> VerifyOutput:
    there = context.bench.target.emulated
    why = "they run on the GPU here" if context.bench.device == "cuda" else "not selected"
    missing = f"{', '.join(there)} under the emulator: {why}" if there else ""
    message = "nothing to emulate" if there else "no variant can be emulated"
    return VerifyOutput(ok=True, message=message, not_exercised=(missing,) if missing else ())
