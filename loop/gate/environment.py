"""Checks of the environment; each failure comes with a hint how to fix it. Notices of preemption."""

import os
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from loop.base.processes import Tick
from loop.builds import build
from loop.builds.build import BuildFailed
from loop.gate.model import (
    DeviceOutput,
    ExtensionOutput,
    LibrariesOutput,
    NumpyOutput,
    PreemptionOutput,
    TorchOutput,
)
from loop.gate.verify import Job, verify
from loop.machine import machine
from loop.machine.gpus import gpus
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.plan import Text
from loop.model.target import CAbiVariant
from loop.model.workloads import expand_sets
from loop.steps.context import Context, NoArguments, Result, RunningAction

EXAMINE_LIMIT_S = 120.0
ANSWER_LIMIT_S = 1.0
"""Longest wait in seconds for a metadata server's first answer; the watch goes on."""
TOOLKIT_ROOT = "/usr/local"
"""Where NVIDIA's installer puts toolkits; a distribution's package puts nvcc on the PATH."""


class Requirement(Model):
    """The required version of a package."""

    at_least: Text
    """Oldest accepted version, as in 2.4."""


def torch(context: Context, arguments: Requirement) -> RunningAction[TorchOutput]:
    """Check torch: installed, new enough, and built for this device and driver."""
    output = TorchOutput.model_validate((yield from _run_check(context, "torch")))
    conflict, hint = explain_torch_misfit(output, arguments.at_least, context.bench.device)
    if output.ok and conflict:
        output = output.model_copy(update={"ok": False, "message": conflict, "hint": hint})
    return Result(output.model_copy(update={"identity": f"torch {output.version} {output.cuda_build}"}))


def explain_torch_misfit(output: TorchOutput, at_least: str, device: Device) -> tuple[str, str | None]:
    """Why this torch does not fit the device (empty if it fits), and how to fix it."""
    installed = gpus()
    if not is_new_enough(output.version, at_least):
        return f"torch {output.version} is older than {at_least}", None
    if device == "cpu":
        return "", None
    if output.cuda_build is None:
        conflict = f"torch {output.version} is a CPU build, the session runs on cuda"
        return conflict, "pip install --force-reinstall torch, from an index with CUDA builds"
    older = f"CUDA {installed.cuda[0]}" if installed.cuda else "an older CUDA"
    conflict = machine.explain_old_driver(
        "torch built for CUDA", output.cuda_build, installed.cuda, installed.driver
    )
    return conflict, f"install a newer driver, or a torch that is built for {older}"


def numpy(context: Context, arguments: Requirement) -> RunningAction[NumpyOutput]:
    """Check NumPy: installed, new enough, and able to share memory with torch."""
    output = NumpyOutput.model_validate((yield from _run_check(context, "numpy")))
    if output.ok and not is_new_enough(output.version, arguments.at_least):
        message = f"NumPy {output.version} is older than {arguments.at_least}"
        output = output.model_copy(update={"ok": False, "message": message})
    return Result(output.model_copy(update={"identity": f"numpy {output.version}"}))


def is_new_enough(version: str, at_least: str) -> bool:
    """Whether a version such as `2.13.0+cpu` is `2.4` or newer."""

    def numbers(text: str) -> list[int]:
        parts = text.split("+")[0].split(".")[:3]
        return [int("".join(filter(str.isdigit, part)) or 0) for part in parts]  # A part may be `0rc1`.

    return numbers(version) >= numbers(at_least)


def device(context: Context, arguments: NoArguments) -> RunningAction[DeviceOutput]:
    """Check the device: present, computes correctly, driver new enough for the toolkit. If nvcc does not
    fit the GPU, the check fails without running anything on the GPU."""
    bench, machine, installed = context.bench, context.task.machine, gpus()
    fields: dict[str, Any] = {"name": machine.processor}
    device_name = machine.processor
    if bench.device == "cuda":
        device_name = installed.first_gpu_text  # The GPU that everything runs on, and which of several.
        fields = {"driver": installed.driver, "toolkit": machine.nvcc, "name": ""}
        fields |= {"cuda": f"{installed.cuda[0]}.{installed.cuda[1]}"} if installed.cuda else {}
        if gpu := installed.first:
            fields |= {"name": gpu.name, "uuid": gpu.uuid, "capability": gpu.capability, "facts": gpu.facts}
    problems = map(explain_misfit, bench.compiled_variants(context.task.variants).values())
    if problem := next(filter(None, problems), None):
        output = DeviceOutput(ok=False, message=problem[0], hint=problem[1], device=bench.device, **fields)
    else:
        reply = yield from _run_check(context, "device")
        output = DeviceOutput.model_validate({**fields, **reply})
    message = f"{device_name or bench.device}: {output.message}"
    identity = f"{bench.device} {output.name} {machine.name} {output.driver}"
    return Result(output.model_copy(update={"message": message, "identity": identity}))


def libraries(context: Context, arguments: NoArguments) -> RunningAction[LibrariesOutput]:
    """Check shared libraries: the linker finds all of them, and no runtime is loaded twice."""
    return Result(LibrariesOutput.model_validate((yield from _run_check(context, "libraries"))))


def _run_check(context: Context, check: str) -> Generator[Tick, None, dict[str, Any]]:
    """Run a check in the judge process, whose environment counts; returns its output's fields."""
    reply = yield from context.bench.check_environment(check, EXAMINE_LIMIT_S)
    return {**reply.output_fields, "ok": reply.is_ok, "message": reply.message}


def extension(context: Context, arguments: NoArguments) -> RunningAction[ExtensionOutput]:
    """Check that builds are up to date, load, and are right on one workload. Passes without builds."""
    loaded: list[str] = []
    bench, folder = context.bench, context.task.folder
    for name, variant in bench.compiled_variants(context.task.variants).items():
        try:
            require_fit(variant)
            yield from build.scan_sources(variant, folder, bench.include)
        except BuildFailed as failed:
            message = f"{name} needs a build: {failed.message}"  # Only the lack of a compiler is a failure here.
            return Result(ExtensionOutput(ok=not failed.no_compiler, message=message, hint=failed.hint))
        built = build.find_build(name, variant, folder, cache=bench.cache, include=bench.include)
        if built is None:
            return Result(ExtensionOutput(ok=True, message=f"{name} needs a build"))
        first = next(iter(bench.target.workloads))
        workload = expand_sets(bench.target, [first], bench.target.dtypes[bench.device])[0]
        (checks,) = yield from verify(bench, [Job(bench.make_side(name, built), [workload], layouts=False)])
        if failure := checks.first_failure:
            hint, message = f"`{context.command('kernels', 'verify', name)}`", f"{name}: {failure.message}"
            return Result(ExtensionOutput(ok=False, message=message, hint=hint, extension="broken"))
        loaded.append(name)
    message = f"{', '.join(loaded)}: fresh, loads, answers" if loaded else "no variant here has to be built"
    return Result(ExtensionOutput(ok=True, message=message, extension="ready"))


def preemption(context: Context, arguments: NoArguments) -> RunningAction[PreemptionOutput]:
    """Report the machine's cloud; fails if the cloud is about to take the machine away."""
    watch, started_s = context.preemption_watch, time.monotonic()
    while watch is not None and not watch.is_settled and time.monotonic() - started_s < ANSWER_LIMIT_S:
        yield Tick("asking for the cloud's metadata server")
        time.sleep(0.02)
    if watch is None:
        message = "preemption watch: nothing is watched outside a session"
        return Result(PreemptionOutput(ok=True, message=message))
    message = f"{watch.cloud} is asked every second" if watch.cloud else "".join(watch.explain_unwatched()[:1])
    fields = {"cloud": watch.cloud, "notice": watch.notice}
    return Result(PreemptionOutput(ok=not watch.notice, message=watch.notice or message, **fields))


def require_fit(variant: CAbiVariant) -> None:
    """Raise BuildFailed if a variant cannot be compiled for the GPU here, or cannot run on it. The driver's
    own error at the first launch, such as `invalid device function`, explains nothing."""
    compiler, gpu = variant.build.compiler, gpus().first
    problem = explain_misfit(variant)
    if gpu is not None and _is_built_by_nvcc(variant) and shutil.which(compiler) is None:
        stated_homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
        newest_first = sorted(Path(TOOLKIT_ROOT).glob("cuda-*"), reverse=True)
        homes = (*stated_homes, Path(TOOLKIT_ROOT) / "cuda", *newest_first)
        programs = [folder / "bin/nvcc" for folder in homes]
        hint = machine.advise_toolkit(gpu.architecture, gpus().cuda)
        if other_nvcc := next(filter(Path.is_file, programs), None):
            hint = f"{other_nvcc} is there: put its folder on the PATH, or name it in target.yaml"
        problem = f"{compiler}: no such compiler on the PATH", hint
    if problem is not None:
        raise BuildFailed(*problem, "", no_compiler=True)


def explain_misfit(variant: CAbiVariant) -> tuple[str, str] | None:
    """Why code from a variant's nvcc does not fit the GPU here, and how to fix it; None if it fits. Also
    None for another compiler and without a compiler or GPU, because nothing is known then."""
    installed = gpus()
    gpu = installed.first
    release = machine.nvcc_release(variant.build.compiler) if _is_built_by_nvcc(variant) else None
    if gpu is None or release is None:
        return None
    conflict = machine.explain_old_driver("code from nvcc", release, installed.cuda, installed.driver)
    if conflict:
        return conflict, machine.advise_driver_or_toolkit(release, installed.cuda)
    unsupported = machine.explain_unknown_gpu(variant.build.compiler, gpu.architecture)
    if unsupported and machine.builds_for(variant.build.flags, gpu.architecture):
        return f"{unsupported} ({gpu.name})", machine.advise_toolkit(gpu.architecture, installed.cuda)
    return None


def _is_built_by_nvcc(variant: CAbiVariant) -> bool:
    return variant.device == "cuda" and Path(variant.build.compiler).name == "nvcc"
