"""Properties: what must hold of a variant's outputs whatever the reference says."""

from collections.abc import Generator, Sequence

from loop.base.processes import Tick
from loop.gate.kernel import builds, compile_all, extra_sets, usable, workloads
from loop.gate.model import PropertiesOutput
from loop.gate.relate import relate
from loop.model.device import Device
from loop.model.measurement import PropertyCheck
from loop.model.target import Workload
from loop.model.verdict import NoSpeedVerdict
from loop.steps.context import Context, NoArguments, Result, Working
from loop.workers.bench import Side


def properties(context: Context, arguments: NoArguments) -> Working[PropertiesOutput]:
    """Every property of the target on every selected variant: the timed workloads, and one of each other type."""
    names = context.bench.target.properties
    if not names:
        return Result(PropertiesOutput(ok=True, message="the target names no properties", not_exercised=NONE))
    found: list[PropertyCheck] = []
    device: Device = context.bench.device if context.task.variants else "cuda"
    for side in (yield from _sides(context)):
        found += yield from relate(context.bench, side, names, chosen(context, device))
    return Result(_output(context, names, found))


def _sides(context: Context) -> Generator[Tick, None, list[Side]]:
    """The variants that run here; where there are none, those that are emulated."""
    bench = context.bench
    if context.task.variants:
        made, _ = yield from builds(context)
        by_name = {one.variant: one for one in made}
        return [bench.side(name, by_name.get(name)) for name in usable(context, made)]
    made, _ = yield from compile_all(context, bench.emulations(context.task.emulated))
    return [bench.side(one.variant, one, emulated=True) for one in made]


NONE = ("properties: target.yaml names none under `properties`",)


def chosen(context: Context, device: Device) -> tuple[Workload, ...]:
    """The timed workloads, and the first of each other type among the checked ones; plain values only."""
    timed = workloads(context, context.task.plan.workloads, device=device)
    others: dict[str, Workload] = {}
    for one in workloads(context, extra_sets(context), device=device):
        if one.dtype not in {workload.dtype for workload in timed} and one.values == "normal":
            others.setdefault(one.dtype, one)
    return (*(one for one in timed if one.values == "normal"), *others.values())


def _output(context: Context, names: Sequence[str], found: Sequence[PropertyCheck]) -> PropertiesOutput:
    failed = [check for check in found if check.status == "failed"]
    held = [check for check in found if check.status == "holds"]
    idle = [
        name
        for name in names
        if not any(check.property == name and check.status != "inapplicable" for check in found)
    ]
    message = _held(len(names) - len(idle), len(held)) if found else "nothing to try them on: no variant runs here"
    hint = None
    if failed:
        message = f"{failed[0].variant}: {failed[0].message}"
        hint = f"`{context.command('kernels', 'verify', failed[0].variant)}` shows where it is wrong"
    return PropertiesOutput(
        ok=not failed,
        message=message,
        hint=hint,
        verdicts=tuple(_verdict(check) for check in failed),
        not_exercised=tuple(f"property {name}: it applies to no workload" for name in idle),
        checks=tuple(found),
        held=len(held),
    )


def _held(properties: int, checks: int) -> str:
    """`1 property holds in 3 checks`."""
    subject = "1 property holds" if properties == 1 else f"{properties} properties hold"
    return f"{subject} in {checks} {'check' if checks == 1 else 'checks'}"


def _verdict(check: PropertyCheck) -> NoSpeedVerdict:
    return NoSpeedVerdict(
        variant=check.variant,
        workload=check.workload,
        against="baseline",
        verdict="incorrect",
        reason=check.message,
    )
