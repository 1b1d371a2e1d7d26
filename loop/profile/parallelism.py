"""Does it fill the device? Pieces of work against the places for them, before anything smaller is optimised."""

from collections.abc import Iterator, Sequence

from loop.gate.model import DeviceOutput
from loop.machine.machine import vector_lanes
from loop.model.base import Model
from loop.model.device_profile import DeviceFacts, at_hand
from loop.model.dtypes import Device
from loop.model.pattern import Text
from loop.model.profile import Filling
from loop.model.target import Variant, Workload
from loop.model.workloads import accepts, expand
from loop.profile import launch_limits
from loop.profile.model import ParallelismOutput, ResourcesOutput
from loop.steps.context import Context, Result, Working


class ParallelismTerms(Model):
    """Which GPU is reckoned with."""

    device: Text = "sm_89"
    """A GPU of the manifest's `devices`, where none of them is at hand."""


def parallelism(context: Context, arguments: ParallelismTerms) -> Working[ParallelismOutput]:
    """Every variant whose launch is told or declared, those for a GPU also where there is none."""
    yield from ()
    names = context.bench.target.variants
    missing = [text for name in names if (text := _missing(context, name, arguments.device))]
    fillings = [filling for name in names for filling in _fillings(context, name, arguments.device)]
    return Result(_output(fillings, missing))


def _missing(context: Context, name: str, default: str) -> str:
    """Why nothing can be said of a variant; empty where something can, or where it was not asked for."""
    variant = context.bench.target.variants[name]
    if launch_limits.launch_of(variant) is None and not any(filling.variant == name for filling in _told(context)):
        return f"parallelism of {name}: the manifest declares no launch" if name in context.task.variants else ""
    if variant.device == "cuda" and device_facts(context, variant, default) is None:
        return f"parallelism of {name}: the manifest has no device {default}"
    return ""


def _fillings(context: Context, name: str, default: str) -> Iterator[Filling]:
    variant = context.bench.target.variants[name]
    for workload in _workloads(context, variant):
        filling = filling_of(context, name, workload, default)
        if filling is not None:
            yield filling


def _workloads(context: Context, variant: Variant) -> Sequence[Workload]:
    """The plan's workloads, in the type that is measured where the variant runs."""
    target = context.bench.target
    device: Device = context.bench.device if variant.device == "any" else variant.device
    dtype = target.dtypes.get(device, variant.dtypes[0])
    return [
        workload for workload in expand(target, context.task.plan.workloads, dtype) if accepts(variant, workload)
    ]


def filling_of(context: Context, name: str, workload: Workload, default: str = "sm_89") -> Filling | None:
    """How far one launch fills its device; None without a launch, a known device, or work.

    What `kernel.resources` found of the same GPU earlier in the session stands before what the manifest declares.
    """
    variant = context.bench.target.variants[name]
    launch, device = launch_limits.launch_of(variant), device_facts(context, variant, default)
    for filling in _told(context) if device else ():
        if device and (filling.variant, filling.workload, filling.on) == (name, workload.name, device.name):
            return filling
    if launch is None:
        return None
    if device is not None:
        here = context.bench.device == "cuda" and device == gpu_at_hand(context)
        return launch_limits.on_gpu(name, launch, workload, device, at_hand=here)
    if variant.device == "cuda":
        return None
    host = launch_limits.Host(context.bench.threads, vector_lanes())
    return launch_limits.on_host(name, launch, workload, host, at_hand=context.bench.device == "cpu")


def _told(context: Context) -> Sequence[Filling]:
    """The launches that host code reported earlier in this session."""
    latest = context.latest("kernel.resources")
    fillings = ResourcesOutput.model_validate(latest, strict=False).fillings if latest else ()
    return [filling for filling in fillings if filling.kernel]


def device_facts(context: Context, variant: Variant, default: str) -> DeviceFacts | None:
    """The GPU that a variant is reckoned with; None for a variant that runs on the processor."""
    on_gpu = variant.device == "cuda" or (variant.device == "any" and context.bench.device == "cuda")
    return (gpu_at_hand(context) or context.bench.target.devices.get(default)) if on_gpu else None


def gpu_at_hand(context: Context) -> DeviceFacts | None:
    """Facts of the GPU that the session runs on, by the environment's own check where it was made."""
    latest = context.latest("environment.device")
    if not latest:
        return context.bench.gpu
    device = DeviceOutput.model_validate(latest, strict=False)
    return at_hand(context.bench.target.devices, device.capability, device.name, device.facts)


def _output(fillings: Sequence[Filling], missing: Sequence[str]) -> ParallelismOutput:
    impossible = [filling for filling in fillings if filling.resident == 0]
    starved = [filling for filling in fillings if filling.starved]
    names = dict.fromkeys(filling.variant for filling in fillings)
    message = "; ".join(_summary([filling for filling in fillings if filling.variant == name]) for name in names)
    if impossible:
        first = impossible[0]
        message = f"{first.variant} cannot be launched on {first.on} for {first.workload}: {first.limited_by}"
    return ParallelismOutput(
        ok=not impossible,
        message=message or "no variant declares its launch",
        hint="fewer threads, registers or less shared memory a block" if impossible else None,
        not_exercised=tuple(missing),
        learned=tuple(_lessons(fillings)),
        fillings=tuple(fillings),
        starved=tuple(dict.fromkeys(filling.variant for filling in starved)),
        least_share=min((filling.share for filling in fillings), default=None),
    )


def _summary(mine: Sequence[Filling]) -> str:
    least = min(mine, key=lambda filling: filling.share)
    starved = sum(filling.starved for filling in mine)
    where = f"{least.variant} on {least.on}{'' if least.at_hand else ', which is not at hand'}"
    if not starved:
        return f"{where}: filled on all of {len(mine)} workloads"
    return (
        f"{where}: not filled on {starved} of {len(mine)} workloads, least on {least.workload} ({least.share:.0%})"
    )


def _lessons(fillings: Sequence[Filling]) -> Iterator[str]:
    for name in dict.fromkeys(filling.variant for filling in fillings if filling.starved):
        least = min(
            (filling for filling in fillings if filling.variant == name), key=lambda filling: filling.share
        )
        places = least.units * least.resident
        yield (
            f"{name} has {least.items} piece{'s' if least.items != 1 else ''} of work for {places} places "
            f"of {least.on} on {least.workload}: "
            "split the work further before anything smaller is optimised."
        )
