"""Reads a project, asks for trust, and chooses device, variants, threads and workload sets."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loop.base.documents import did_you_mean
from loop.base.errors import LoopError, Untrusted, UsageError
from loop.base.places import cache_folder, include_folder
from loop.builds.resources import is_nvcc
from loop.library import definitions, targets, trust
from loop.library.definitions import Project, find_project
from loop.machine.machine import cores, detect_gpus, explain_no_gpu, machine
from loop.model.dtypes import Device
from loop.model.plan import Pattern, Plan
from loop.model.record import SessionHead
from loop.model.target import CAbiVariant, Entry, Target
from loop.model.workloads import WorkloadError, expand_sets, format_entry, make_entry, parse_entry
from loop.report.screen import Screen
from loop.workers.bench import Bench


@dataclass(frozen=True)
class Setting:
    """A project with its target, patterns and plans, read and checked."""

    project: Project
    target: Target
    patterns: dict[str, definitions.ParsedFile[Pattern]]
    plans: dict[str, definitions.ParsedFile[Plan]]


def read_setting(target: Path | None) -> Setting:
    """Read a project's definitions. Raises DefinitionError with all mistakes of one bad file."""
    project = find_project(target, Path.cwd())
    definition = targets.read_target(project).value
    return Setting(project, definition, definitions.patterns(project), definitions.plans(project))


def trusted_setting(target: Path | None, screen: Screen) -> Setting:
    """Read a project's definitions, and ask before the command runs its code. Raises Untrusted."""
    setting = read_setting(target)
    ask_for_trust(setting.project, screen)
    return setting


def ask_for_trust(project: Project, screen: Screen) -> None:
    """Ask before a project's code runs for the first time, and store a yes. Raises Untrusted."""
    if trust.is_trusted(project):
        return
    digest, lines = trust.definition_hash(project), [*trust.what_runs(project)]
    origin = trust.read_origin(project.target)  # Of a task that the user gave.
    name = origin.task if origin and origin.format is None else project.manifest
    screen.say("\n  ".join([f"{name} would run:", *lines]))
    if not screen.confirm("Allow it, until what they run changes?"):
        raise trust.untrusted_error(project)
    trust.grant(project.target, digest)


def ask_for_session_trust(
    folder: Path, head: SessionHead, setting: Setting, screen: Screen
) -> None:
    """Ask before a stored session runs commands that the definitions lack. Raises Untrusted."""
    patterns = [file.value for file in setting.patterns.values()]
    lines = trust.untrusted_commands(folder, head, patterns)
    if not lines:
        return
    problem = f"{folder}: you did not begin this session here, and the definitions do not run"
    screen.say("\n  ".join([f"{problem} what it would run:", *lines]))
    if not screen.confirm("Allow it, for this session?"):
        hint = f"look at it, then `{shlex.join(['loop', 'trust', str(folder.resolve())])}`"
        raise Untrusted(f"{problem}: {'; '.join(lines)}", hint)
    trust.grant_session(folder, head)


def choose_device(wanted_device: str, target: Target, variants: Sequence[str] = ()) -> Device:
    """The device to run on. `auto` is cuda if a named variant (or any) is made for a GPU, and there
    is a GPU or all of them need one: then the error says why there is none. Else it is cpu. Raises
    LoopError for cuda without a usable GPU, and if no variant runs or is emulated on the device."""
    has_gpu, wants_gpu = bool(machine().gpus), wanted_device == "cuda"
    if wanted_device == "auto":
        names = variants or target.variants
        devices = {target.variants[name].device for name in names if name in target.variants}
        needs_gpu = devices == {"cuda"} and not set(names) <= set(target.emulated_variants)
        wants_gpu = "cuda" in devices and (has_gpu or needs_gpu)
    device: Device = "cuda" if wants_gpu else "cpu"
    if device == "cuda" and not has_gpu:
        raise _no_gpu_error(target)
    if not target.variants_on(device) and not choose_emulated((), target, device):
        message = f"target {target.name} has no variant for {device}"
        raise UsageError(message, hint="add one to its target.yaml")
    return device


def _no_gpu_error(target: Target) -> LoopError:
    """The error that says why no GPU is usable. Its hint names what can be done without one."""
    message, remedy = explain_no_gpu(detect_gpus())
    variants = [variant for variant in target.variants.values() if isinstance(variant, CAbiVariant)]
    other_hint = ""
    if target.emulated_variants or target.variants_on("cpu"):
        emulated = " (the emulator runs what is made for a GPU)" if target.emulated_variants else ""
        other_hint = f"run with --device cpu{emulated}, or "
    elif machine().nvcc and any(is_nvcc(variant.build) for variant in variants):
        gpu = next(iter(target.devices), "sm_89")
        command = f"loop kernels resources --gpu {gpu} --target FOLDER"
        other_hint = f"`{command}` compiles it without a GPU and reports; to run it, "
    return UsageError(message, hint=f"{other_hint}{remedy}")


def choose_variants(names: Sequence[str], target: Target, device: Device) -> tuple[str, ...]:
    """The named variants that run on the device itself; without names, all. Named ones that are
    emulated are left out (see `choose_emulated`). Raises UsageError for any other name."""
    runnable = target.variants_on(device)
    for name in names:
        if name not in target.variants:
            hint = definitions.name_hint(name, target.variants)
            raise UsageError(f"target {target.name} has no variant {name!r}", hint=hint)
        if device == "cuda" and (mismatch := architecture_mismatch(target, name)):
            raise UsageError(f"variant {name}: {mismatch}", hint="--device cpu emulates it")
        if name not in (*runnable, *choose_emulated(names, target, device)):
            device_name = target.variants[name].device
            raise UsageError(f"variant {name} does not run on {device}", f"--device {device_name}")
    if device == "cuda":
        runnable = tuple(name for name in runnable if not architecture_mismatch(target, name))
    return tuple(name for name in dict.fromkeys(names or runnable) if name in runnable)


def architecture_mismatch(target: Target, name: str) -> str:
    """Why a variant does not run on this GPU: it names another architecture. Else empty."""
    variant, gpu = target.variants[name], detect_gpus().first
    architecture = variant.architecture if isinstance(variant, CAbiVariant) else None
    if architecture is None or gpu is None or gpu.architecture == architecture:
        return ""
    return f"it is made for {architecture}, and {gpu.name} is {gpu.architecture}"


def choose_emulated(names: Sequence[str], target: Target, device: Device) -> tuple[str, ...]:
    """The GPU variants among `names`, or all, that a session on the CPU emulates; empty on cuda."""
    emulated = target.emulated_variants if device == "cpu" else ()
    return tuple(name for name in names if name in emulated) if names else emulated


def choose_threads(threads: int | None) -> int:
    """`threads`; None: all cores but one, which the judge needs. UsageError for too many."""
    if threads is not None and not 1 <= threads <= cores():
        raise UsageError(f"--threads {threads}: expected 1 to {cores()}, the cores of this machine")
    return threads or max(1, cores() - 1)


def open_bench(setting: Setting, device: Device, threads: int, *, sanitize: bool = False) -> Bench:
    """The bench of a session, on which nothing runs yet. `sanitize`: build emulated variants with
    sanitizers. Raises LoopError for cuda without a usable GPU."""
    if device == "cuda" and not machine().gpus:
        raise _no_gpu_error(setting.target)
    return Bench(
        target=setting.target,
        folder=setting.project.target,
        cache=cache_folder() / "builds",
        include=include_folder(),
        device=device,
        threads=threads,
        sanitize=sanitize,
    )


def with_stated_workloads(setting: Setting, names: Sequence[str]) -> Setting:
    """The setting with a workload set of one workload for each name such as `B=1 S=65`; other names
    are of sets that exist. Raises UsageError if signature or tolerances have no such workload."""
    target, dtype = setting.target, next(iter(setting.target.tolerance))
    sets: dict[str, tuple[Entry, ...]] = dict(target.workloads)
    for text in (name for name in names if "=" in name):
        try:
            sets[text] = ({**parse_entry(text)},)
            (workload,) = expand_sets(target.model_copy(update={"workloads": sets}), [text], dtype)
            if workload.dtype not in target.tolerance:
                expected = f"one of {', '.join(target.tolerance)}"
                raise WorkloadError("dtype", expected, repr(workload.dtype))
        except WorkloadError as error:
            first_workload = expand_sets(target, target.workloads, dtype)[0]
            example = format_entry(make_entry(target.signature, first_workload))
            hint = did_you_mean(error.key, error.known) or f"as in --workloads {example!r}"
            raise UsageError(f"--workloads {text!r}: {error}", hint) from error
    return replace(setting, target=target.model_copy(update={"workloads": sets}))


def choose_sets(names: Sequence[str], target: Target) -> tuple[str, ...]:
    """The named workload sets, or the target's first. Raises LoopError for an unknown name."""
    for name in names:
        if name not in target.workloads:
            hint = definitions.name_hint(name, target.workloads)
            raise UsageError(f"target {target.name} has no workload set {name!r}", hint=hint)
    return tuple(names) or (next(iter(target.workloads)),)
