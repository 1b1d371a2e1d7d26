"""Does it fill the device? Pieces of work against the places for them, before anything smaller is optimised."""

from collections.abc import Iterator, Sequence

from loop.gate.model import DeviceOutput
from loop.machine.machine import vector_lanes
from loop.model.base import Model
from loop.model.device_profile import DeviceFacts, at_hand
from loop.model.dtypes import Device
from loop.model.pattern import Text
from loop.model.profile import Occupancy
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
    found = [one for name in names for one in _fillings(context, name, arguments.device)]
    return Result(_output(found, missing))


def _missing(context: Context, name: str, default: str) -> str:
    """Why nothing can be said of a variant; empty where something can, or nobody asked for it."""
    variant = context.bench.target.variants[name]
    if launch_limits.launch_of(variant) is None and not any(one.variant == name for one in _told(context)):
        return f"parallelism of {name}: the manifest declares no launch" if name in context.task.variants else ""
    if variant.device == "cuda" and device_facts(context, variant, default) is None:
        return f"parallelism of {name}: the manifest has no device {default}"
    return ""


def _fillings(context: Context, name: str, default: str) -> Iterator[Occupancy]:
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
    return [one for one in expand(target, context.task.plan.workloads, dtype) if accepts(variant, one)]


def filling_of(context: Context, name: str, workload: Workload, default: str = "sm_89") -> Occupancy | None:
    """How far one launch fills its device; None without a launch, a known device, or work.

    What `kernel.resources` found of the same GPU earlier in the session stands before what the manifest declares.
    """
    variant = context.bench.target.variants[name]
    launch, device = launch_limits.launch_of(variant), device_facts(context, variant, default)
    for one in _told(context) if device else ():
        if device and (one.variant, one.workload, one.on) == (name, workload.name, device.name):
            return one
    if launch is None:
        return None
    if device is not None:
        here = context.bench.device == "cuda" and device == gpu_at_hand(context)
        return launch_limits.on_gpu(name, launch, workload, device, at_hand=here)
    if variant.device == "cuda":
        return None
    host = launch_limits.Host(context.bench.threads, vector_lanes())
    return launch_limits.on_host(name, launch, workload, host, at_hand=context.bench.device == "cpu")


def _told(context: Context) -> Sequence[Occupancy]:
    """The launches that host code told, where this session has asked it."""
    latest = context.latest("kernel.resources")
    found = ResourcesOutput.model_validate(latest, strict=False).fillings if latest else ()
    return [one for one in found if one.kernel]


def device_facts(context: Context, variant: Variant, default: str) -> DeviceFacts | None:
    """The GPU that a variant is reckoned with; None for a variant that runs on the processor."""
    on_gpu = variant.device == "cuda" or (variant.device == "any" and context.bench.device == "cuda")
    return (gpu_at_hand(context) or context.bench.target.devices.get(default)) if on_gpu else None


def gpu_at_hand(context: Context) -> DeviceFacts | None:
    """Facts of the GPU that the session runs on, by the environment's own check where it was made."""
    latest = context.latest("environment.device")
    if not latest:
        return context.bench.gpu
    seen = DeviceOutput.model_validate(latest, strict=False)
    return at_hand(context.bench.target.devices, seen.capability, seen.name, seen.facts)


def _output(found: Sequence[Occupancy], missing: Sequence[str]) -> ParallelismOutput:
    impossible = [one for one in found if one.resident == 0]
    starved = [one for one in found if one.starved]
    return ParallelismOutput(
        ok=not impossible,
        message=_impossible(impossible[0]) if impossible else _describe(found),
        hint="fewer threads, registers or less shared memory a block" if impossible else None,
        not_exercised=tuple(missing),
        learned=tuple(_lessons(found)),
        fillings=tuple(found),
        starved=tuple(dict.fromkeys(one.variant for one in starved)),
        least_share=min((one.share for one in found), default=None),
    )


def _impossible(one: Occupancy) -> str:
    return f"{one.variant} cannot be launched on {one.on} for {one.workload}: {one.limited_by}"


def _describe(found: Sequence[Occupancy]) -> str:
    names = dict.fromkeys(one.variant for one in found)
    return "; ".join(_summary([one for one in found if one.variant == name]) for name in names) or (
        "no variant declares its launch"
    )


def _summary(mine: Sequence[Occupancy]) -> str:
    least = min(mine, key=lambda one: one.share)
    starved = sum(one.starved for one in mine)
    where = f"{least.variant} on {least.on}{'' if least.at_hand else ', which is not at hand'}"
    if not starved:
        return f"{where}: filled on all of {len(mine)} workloads"
    return (
        f"{where}: not filled on {starved} of {len(mine)} workloads, least on {least.workload} ({least.share:.0%})"
    )


def _lessons(found: Sequence[Occupancy]) -> Iterator[str]:
    for name in dict.fromkeys(one.variant for one in found if one.starved):
        least = min((one for one in found if one.variant == name), key=lambda one: one.share)
        places = least.units * least.resident
        yield (
            f"{name} has {least.items} piece{'s' if least.items != 1 else ''} of work for {places} places "
            f"of {least.on} on {least.workload}: "
            "split the work further before anything smaller is optimised."
        )
