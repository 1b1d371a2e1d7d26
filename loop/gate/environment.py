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
from loop.builds.resources import is_nvcc
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
from loop.machine.gpus import detect_gpus
from loop.machine.machine import cores
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.plan import Text
from loop.model.target import CAbiVariant
from loop.model.workloads import expand_sets
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.workers.judge_messages import CheckEnvironment

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
    """Why this torch does not fit the device or its driver (empty if it fits), and how to fix that, if known."""
    gpus_here = detect_gpus()
    if not is_new_enough(output.version, at_least):
        return f"torch {output.version} is older than {at_least}", None
    if device == "cpu":
        return "", None
    if output.cuda_build is None:
        conflict = f"torch {output.version} is a CPU build, the session runs on cuda"
        return conflict, "pip install --force-reinstall torch, from an index with CUDA builds"
    supported = f"CUDA {gpus_here.cuda[0]}" if gpus_here.cuda else "an older CUDA"
    driver = gpus_here.cuda, gpus_here.driver
    conflict, _ = machine.explain_old_driver("torch built for CUDA", output.cuda_build, *driver)
    return conflict, f"install a newer driver, or a torch that is built for {supported}"


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
    bench, host, gpus_here = context.bench, context.task.machine, detect_gpus()
    fields: dict[str, Any] = {"name": host.processor}
    device_name = host.processor
    if bench.device == "cuda":
        device_name = gpus_here.first_gpu_text  # It also says which of several GPUs is used.
        fields = {"driver": gpus_here.driver, "toolkit": host.nvcc, "name": ""}
        if gpus_here.cuda:
            fields["cuda"] = f"{gpus_here.cuda[0]}.{gpus_here.cuda[1]}"
        if gpu := gpus_here.first:
            fields |= {"name": gpu.name, "uuid": gpu.uuid}
            fields |= {"capability": gpu.capability, "facts": gpu.facts}
    compiled = bench.compiled_variants(context.task.variants).values()
    if misfit := next(filter(None, map(find_misfit, compiled)), None):
        fields |= {"message": misfit.message, "hint": misfit.hint}
        output = DeviceOutput(ok=False, device=bench.device, **fields)
    else:
        reply = yield from _run_check(context, "device")
        output = DeviceOutput.model_validate({**fields, **reply})
    message = f"{device_name or bench.device}: {output.message}"
    identity = f"{bench.device} {output.name} {host.name} {output.driver}"
    return Result(output.model_copy(update={"message": message, "identity": identity}))


def libraries(context: Context, arguments: NoArguments) -> RunningAction[LibrariesOutput]:
    """Check shared libraries: the linker finds all of them, and no runtime is loaded twice."""
    return Result(LibrariesOutput.model_validate((yield from _run_check(context, "libraries"))))


def _run_check(context: Context, check: str) -> Generator[Tick, None, dict[str, Any]]:
    """Run a check in the judge process, whose environment counts; returns its output's fields."""
    request = CheckEnvironment(check, cores(), context.bench.device)
    reply = yield from context.bench.ask_judge(request, EXAMINE_LIMIT_S, f"checking {check}")
    return {**reply.output_fields, "ok": reply.is_ok, "message": reply.message}


def extension(context: Context, arguments: NoArguments) -> RunningAction[ExtensionOutput]:
    """Check that builds are up to date, load, and are right on one workload; a variant without a build passes.
    The check ends at the first variant that needs a build, or is wrong on the first workload of target.yaml."""
    bench, folder, right_variants = context.bench, context.task.folder, list[str]()
    for name, variant in bench.compiled_variants(context.task.variants).items():
        try:
            require_fit(variant)
            yield from build.scan_sources(variant, folder, bench.include)
        except BuildFailed as failure:
            message = f"{name} needs a build: {failure.message}"
            ok = not failure.no_compiler
            return Result(ExtensionOutput(ok=ok, message=message, hint=failure.hint))
        cached = build.find_build(name, variant, folder, cache=bench.cache, include=bench.include)
        if cached is None:
            return Result(ExtensionOutput(ok=True, message=f"{name} needs a build"))
        workload = expand_sets(bench.target, bench.target.workloads, bench.target.dtypes[bench.device])[0]
        (checks,) = yield from verify(bench, [Job(bench.make_side(name, cached), [workload], layouts=False)])
        if failed_check := checks.first_failure:
            message = f"{name}: {failed_check.message}"
            hint = f"`{context.command('kernels', 'verify', name)}`"
            return Result(ExtensionOutput(ok=False, message=message, hint=hint, extension="broken"))
        right_variants.append(name)
    right = f"{', '.join(right_variants)}: fresh, loads, answers" if right_variants else ""
    message = right or "no variant here has to be built"
    return Result(ExtensionOutput(ok=True, message=message, extension="ready"), idle=not right)


def preemption(context: Context, arguments: NoArguments) -> RunningAction[PreemptionOutput]:
    """Report the machine's cloud; fails if that announces preemption within `ANSWER_LIMIT_S`.
    Waits at most that long for its first answer; outside a session nothing is watched, and the step passes."""
    watch, deadline = context.preemption_watch, time.monotonic() + ANSWER_LIMIT_S
    if watch is None:
        message = "preemption watch: nothing is watched outside a session"
        return Result(PreemptionOutput(ok=True, message=message), idle=True)
    while not watch.is_settled and time.monotonic() < deadline:
        yield Tick("asking for the cloud's metadata server")
        time.sleep(0.02)
    message = watch.notice or "; ".join(watch.explain_unwatched())
    if watch.cloud and not watch.notice:
        message = f"{watch.cloud} is asked every second"
    fields = {"cloud": watch.cloud, "notice": watch.notice}
    return Result(PreemptionOutput(ok=not watch.notice, message=message, **fields))


def require_fit(variant: CAbiVariant) -> None:
    """Raise BuildFailed if a variant cannot be compiled for the GPU here, or cannot run on it. The driver's
    own error at the first launch, such as `invalid device function`, explains nothing."""
    compiler, gpu, misfit = variant.build.compiler, detect_gpus().first, find_misfit(variant)
    is_for_nvcc = variant.device == "cuda" and is_nvcc(variant.build)
    if gpu is not None and is_for_nvcc and shutil.which(compiler) is None:
        toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
        toolkits.append(Path(TOOLKIT_ROOT) / "cuda")
        toolkits += sorted(Path(TOOLKIT_ROOT).glob("cuda-*"), reverse=True)  # The newest first.
        hint = machine.suggest_toolkit(gpu.architecture, detect_gpus().cuda)
        for other_nvcc in [toolkit / "bin/nvcc" for toolkit in toolkits]:
            if other_nvcc.is_file():
                remedy = "put its folder on the PATH, or name it in target.yaml"
                hint = f"{other_nvcc} is there: {remedy}"
                break
        message = f"{compiler}: no such compiler on the PATH"
        misfit = BuildFailed(message, hint, "", no_compiler=True)
    if misfit is not None:
        raise misfit


def find_misfit(variant: CAbiVariant) -> BuildFailed | None:
    """The error that code from a variant's nvcc does not fit the driver or GPU here; None if it fits. Also None
    for another compiler and without a compiler or GPU, because nothing is known then."""
    gpus_here, compiler = detect_gpus(), variant.build.compiler
    gpu, driver_cuda = gpus_here.first, gpus_here.cuda
    is_for_nvcc = variant.device == "cuda" and is_nvcc(variant.build)
    release = machine.nvcc_release(compiler) if is_for_nvcc else None
    if gpu is None or release is None:
        return None
    conflict, hint = machine.explain_old_driver("code from nvcc", release, driver_cuda, gpus_here.driver)
    if conflict:
        return BuildFailed(conflict, hint, "", no_compiler=True)
    unsupported = machine.explain_unknown_gpu(compiler, gpu.architecture)
    if unsupported and machine.requests_code_for(variant.build.flags, gpu.architecture):
        hint = machine.suggest_toolkit(gpu.architecture, driver_cuda)
        return BuildFailed(f"{unsupported} ({gpu.name})", hint, "", no_compiler=True)
    return None
