"""Does it fill the device? Pieces of work against the places for them, before anything smaller is optimised."""

from collections.abc import Sequence

from loop.gate.model import DeviceOutput
from loop.machine.machine import vector_lanes
from loop.model.base import Model
from loop.model.device_profile import DeviceFacts, at_hand
from loop.model.dtypes import Device
from loop.model.pattern import Text
from loop.model.profile import Occupancy
from loop.model.target import CommandVariant, Launch, Variant, Workload
from loop.model.workloads import accepts, expand
from loop.profile.launch_limits import on_gpu, on_host
from loop.profile.model import ParallelismOutput, ResourcesOutput
from loop.report import format as say
from loop.steps.context import Context, Result, Working


class ParallelismTerms(Model):
    """Which GPU is reckoned with."""

    device: Text = "sm_89"
    """A GPU of the manifest's `devices`, where none of them is at hand."""


def parallelism(context: Context, arguments: ParallelismTerms) -> Working[ParallelismOutput]:
    """Every variant whose launch is told or declared, those for a GPU also where there is none."""
    yield from ()
    target, default = context.bench.target, arguments.device
    known = {filling.variant for filling in _told(context)}
    missing: list[str] = []
    fillings: list[Occupancy] = []
    for name, variant in target.variants.items():
        if _launch_of(variant) is None and name not in known:
            asked = name in context.task.variants
            missing += [f"parallelism of {name}: the manifest declares no launch"] if asked else []
        elif variant.device == "cuda" and _gpu_of(context, variant, default) is None:
            missing.append(f"parallelism of {name}: the manifest has no device {default}")
        device: Device = context.bench.device if variant.device == "any" else variant.device
        dtype = target.dtypes.get(device, variant.dtypes[0])
        for workload in expand(target, context.task.plan.workloads, dtype):
            filling = filling_of(context, name, workload, default) if accepts(variant, workload) else None
            fillings += [filling] if filling else []
    return Result(_output(fillings, missing))


def filling_of(context: Context, name: str, workload: Workload, default: str = "sm_89") -> Occupancy | None:
    """How far one launch fills its device; None without a launch, a known device, or work.

    What `kernel.resources` found of the same GPU earlier in the session stands before what the manifest declares.
    """
    variant = context.bench.target.variants[name]
    bench, launch, device = context.bench, _launch_of(variant), _gpu_of(context, variant, default)
    if device is not None:
        for filling in _told(context):
            if (filling.variant, filling.workload, filling.on) == (name, workload.name, device.name):
                return filling
    if launch is None or (device is None and variant.device == "cuda"):
        return None
    if device is None:
        return on_host(name, launch, workload, bench.threads, vector_lanes(), at_hand=bench.device == "cpu")
    here = bench.device == "cuda" and device == gpu_at_hand(context)
    return on_gpu(name, launch, workload, device, at_hand=here)


def _launch_of(variant: Variant) -> Launch | None:
    return None if isinstance(variant, CommandVariant) else variant.launch


def _told(context: Context) -> Sequence[Occupancy]:
    """The launches that host code reported earlier in this session."""
    latest = context.latest("kernel.resources")
    fillings = ResourcesOutput.model_validate(latest, strict=False).fillings if latest else ()
    return [filling for filling in fillings if filling.kernel]


def _gpu_of(context: Context, variant: Variant, default: str) -> DeviceFacts | None:
    """The GPU that a variant is reckoned with; None for a variant that runs on the processor."""
    if variant.device == "cuda" or (variant.device == "any" and context.bench.device == "cuda"):
        return gpu_at_hand(context) or context.bench.target.devices.get(default)
    return None


def gpu_at_hand(context: Context) -> DeviceFacts | None:
    """Facts of the GPU that the session runs on, by the environment's own check where it was made."""
    latest = context.latest("environment.device")
    if not latest:
        return context.bench.gpu
    device = DeviceOutput.model_validate(latest, strict=False)
    return at_hand(context.bench.target.devices, device.capability, device.name, device.facts)


def _output(fillings: Sequence[Occupancy], missing: Sequence[str]) -> ParallelismOutput:
    impossible = next((filling for filling in fillings if filling.resident == 0), None)
    parts, learned = [], []
    for name in dict.fromkeys(filling.variant for filling in fillings):
        own = [filling for filling in fillings if filling.variant == name]
        least, starved = min(own, key=lambda filling: filling.share), sum(filling.starved for filling in own)
        where = f"{name} on {least.on}{'' if least.at_hand else ', which is not at hand'}"
        if not starved:
            parts.append(f"{where}: filled on all of {len(own)} workloads")
            continue
        least_on = f"least on {least.workload} ({least.share:.0%})"
        parts.append(f"{where}: not filled on {starved} of {len(own)} workloads, {least_on}")
        learned.append(
            f"{name} has {say.count(least.items, 'piece')} of work for {least.units * least.resident} places of "
            f"{least.on} on {least.workload}: split the work further before anything smaller is optimised."
        )
    message = "; ".join(parts) or "no variant declares its launch"
    if impossible:
        what = f"{impossible.variant} cannot be launched on {impossible.on} for {impossible.workload}"
        message = f"{what}: {impossible.limited_by}"
    return ParallelismOutput(
        ok=not impossible,
        message=message,
        hint="fewer threads, registers or less shared memory a block" if impossible else None,
        not_exercised=tuple(missing),
        learned=tuple(learned),
        fillings=tuple(fillings),
        starved=tuple(dict.fromkeys(filling.variant for filling in fillings if filling.starved)),
        least_share=min((filling.share for filling in fillings), default=None),
    )
