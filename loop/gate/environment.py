"""Checks of the environment; each failure has a hint how to fix it. Notices of preemption."""

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from loop.base.processes import Tick, Waiting, output_of
from loop.builds import build
from loop.builds.build import BuildFailed
from loop.builds.resources import is_nvcc
from loop.gate import model
from loop.gate.verify import Job, verify
from loop.machine import machine
from loop.machine.machine import cores, detect_gpus
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.plan import Text
from loop.model.target import CAbiVariant
from loop.model.workloads import expand_sets
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.workers.judge_messages import CheckEnvironment

EXAMINE_LIMIT_S = 120.0
ANSWER_LIMIT_S = 1.0  # Longest wait in seconds for a metadata server; the watch goes on.
TOOLKIT_ROOT = "/usr/local"  # Where NVIDIA's installer puts toolkits; packages put nvcc on PATH.


class Requirement(Model):
    """The required version of a package."""

    at_least: Text
    """Oldest accepted version, as in 2.4."""


def torch(context: Context, arguments: Requirement) -> RunningAction[model.TorchOutput]:
    """Check torch: installed, new enough, and built for this device and driver."""
    output = model.TorchOutput.model_validate((yield from _run_check(context, "torch")))
    conflict, hint = explain_torch_misfit(output, arguments.at_least, context.bench.device)
    if output.ok and conflict:
        output = output.model_copy(update={"ok": False, "message": conflict, "hint": hint})
    identity = f"torch {output.version} {output.cuda_build}"
    return Result(output.model_copy(update={"identity": identity}))


def explain_torch_misfit(
    output: model.TorchOutput, at_least: str, device: Device
) -> tuple[str, str | None]:
    """Why this torch does not fit the device or its driver (else empty); a remedy if known."""
    gpus_here = detect_gpus()
    if not is_new_enough(output.version, at_least):
        return f"torch {output.version} is older than {at_least}", None
    if device == "cuda" and output.cuda_build is None:
        conflict = f"torch {output.version} is a CPU build, the session runs on cuda"
        return conflict, "pip install --force-reinstall torch, from an index with CUDA builds"
    if device == "cpu" or output.cuda_build is None:
        return "", None
    driver_cuda, driver = gpus_here.cuda, gpus_here.driver
    supported = f"CUDA {driver_cuda[0]}" if driver_cuda else "an older CUDA"
    subject = "torch built for CUDA"
    conflict, _ = machine.explain_old_driver(subject, output.cuda_build, driver_cuda, driver)
    return conflict, f"install a newer driver, or a torch that is built for {supported}"


def numpy(context: Context, arguments: Requirement) -> RunningAction[model.NumpyOutput]:
    """Check NumPy: installed, new enough, and able to share memory with torch."""
    output = model.NumpyOutput.model_validate((yield from _run_check(context, "numpy")))
    if output.ok and not is_new_enough(output.version, arguments.at_least):
        message = f"NumPy {output.version} is older than {arguments.at_least}"
        output = output.model_copy(update={"ok": False, "message": message})
    return Result(output.model_copy(update={"identity": f"numpy {output.version}"}))


def is_new_enough(version: str, at_least: str) -> bool:
    """Whether a version such as `2.13.0+cpu` is `2.4` or newer."""
    texts = (text.split("+")[0] for text in (version, at_least))
    numbers, least = ([int(number) for number in re.findall(r"\d+", text)] for text in texts)
    return numbers >= least


def device(context: Context, arguments: NoArguments) -> RunningAction[model.DeviceOutput]:
    """Check the device: present, computes correctly, driver new enough for the toolkit. If nvcc
    does not fit the GPU, the check fails without running anything on the GPU."""
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
    try:
        for variant in bench.compiled_variants(context.task.variants).values():
            require_fit(variant, needs_compiler=False)
        fields |= yield from _run_check(context, "device")
    except BuildFailed as misfit:
        fields |= {"ok": False, "message": misfit.message, "hint": misfit.hint}
        fields |= {"device": bench.device}
    output = model.DeviceOutput.model_validate(fields)
    message = f"{device_name or bench.device}: {output.message}"
    identity = f"{bench.device} {output.name} {host.name} {output.driver}"
    return Result(output.model_copy(update={"message": message, "identity": identity}))


def libraries(context: Context, arguments: NoArguments) -> RunningAction[model.LibrariesOutput]:
    """Check shared libraries: the linker finds all of them, and no runtime is loaded twice."""
    fields = yield from _run_check(context, "libraries")
    return Result(model.LibrariesOutput.model_validate(fields))


def _run_check(context: Context, check: str) -> Waiting[dict[str, Any]]:
    """Run a check in the judge process, whose environment counts; returns its output's fields."""
    request = CheckEnvironment(check, cores(), context.bench.device)
    reply = yield from context.bench.ask_judge(request, EXAMINE_LIMIT_S, f"checking {check}")
    return {**reply.output_fields, "ok": reply.is_ok, "message": reply.message}


def extension(context: Context, arguments: NoArguments) -> RunningAction[model.ExtensionOutput]:
    """Check that builds are up to date, load, and are right on target.yaml's first workload; a
    variant without a build passes. Ends at the first variant that needs a build, or is wrong."""
    bench, folder, right_variants = context.bench, context.task.folder, list[str]()
    target = bench.target
    for name, variant in bench.compiled_variants(context.task.variants).items():
        try:
            require_fit(variant)
            yield from build.scan_sources(variant, folder, bench.include)
        except BuildFailed as failure:
            message = f"{name} needs a build: {failure.message}"
            ok = not failure.no_compiler
            return Result(model.ExtensionOutput(ok=ok, message=message, hint=failure.hint))
        cached = build.find_build(name, variant, folder, cache=bench.cache, include=bench.include)
        if cached is None:
            return Result(model.ExtensionOutput(ok=True, message=f"{name} needs a build"))
        workload = expand_sets(target, target.workloads, target.dtypes[bench.device])[0]
        job = Job(bench.make_side(name, cached), [workload], layouts=False)
        (checks,) = yield from verify(bench, [job])
        if failed_check := checks.first_failure:
            message = f"{name}: {failed_check.message}"
            hint = f"`{context.command('kernels', 'verify', name)}`"
            output = model.ExtensionOutput(ok=False, message=message, hint=hint, extension="broken")
            return Result(output)
        right_variants.append(name)
    message = f"{', '.join(right_variants)}: fresh, loads, answers"
    if not right_variants:
        message = "no variant here has to be built"
    output = model.ExtensionOutput(ok=True, message=message, extension="ready")
    return Result(output, idle=not right_variants)


def preemption(context: Context, arguments: NoArguments) -> RunningAction[model.PreemptionOutput]:
    """Report the machine's cloud; fails if that announces preemption within `ANSWER_LIMIT_S`. Waits
    so long for its first answer; outside a session nothing is watched, and the step passes."""
    watch, deadline = context.preemption_watch, time.monotonic() + ANSWER_LIMIT_S
    if watch is None:
        message = "preemption watch: nothing is watched outside a session"
        return Result(model.PreemptionOutput(ok=True, message=message), idle=True)
    while not watch.is_settled and time.monotonic() < deadline:
        yield Tick("asking for the cloud's metadata server")
        time.sleep(0.02)
    watched = f"{watch.cloud} is asked every second"
    if not watch.cloud:
        watched = "; ".join(watch.explain_unwatched())
    fields = {"cloud": watch.cloud, "notice": watch.notice}
    message = watch.notice or watched
    return Result(model.PreemptionOutput(ok=not watch.notice, message=message, **fields))


def require_fit(variant: CAbiVariant, *, needs_compiler: bool = True) -> None:
    """Raise BuildFailed if a variant cannot be compiled by its nvcc for the GPU here, or cannot run
    on it: the driver's own error at the first launch explains nothing. Passes without a GPU or for
    another compiler, as nothing is known then; without nvcc, unless `needs_compiler`."""
    gpus_here, compiler = detect_gpus(), variant.build.compiler
    gpu, driver_cuda = gpus_here.first, gpus_here.cuda
    if gpu is None or variant.device != "cuda" or not is_nvcc(variant.build):
        return
    # A toolkit for this GPU, no newer than its driver supports.
    bound = f", older than {driver_cuda[0] + 1}.0" if driver_cuda else ""
    hint = f"install a CUDA toolkit that knows {gpu.architecture}{bound}: {machine.TOOLKIT_ARCHIVE}"
    if needs_compiler and shutil.which(compiler) is None:
        folders = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
        toolkits = [Path(folder) for folder in folders if folder is not None]
        toolkits.append(Path(TOOLKIT_ROOT) / "cuda")
        toolkits += sorted(Path(TOOLKIT_ROOT).glob("cuda-*"), reverse=True)  # The newest first.
        compilers = [toolkit / "bin/nvcc" for toolkit in toolkits]
        if present := next(filter(Path.is_file, compilers), None):
            hint = f"{present} is there: put its folder on the PATH, or name it in target.yaml"
        raise BuildFailed(f"{compiler}: no such compiler on the PATH", hint, "", no_compiler=True)
    release = machine.nvcc_release(compiler)
    if release is None:
        return
    subject = "code from nvcc"
    conflict, remedy = machine.explain_old_driver(subject, release, driver_cuda, gpus_here.driver)
    if conflict:
        raise BuildFailed(conflict, remedy, "", no_compiler=True)
    codes_text = output_of([compiler, "--list-gpu-code"], limit_s=machine.VERSION_LIMIT_S)
    codes = (codes_text or "").split()  # A compiler may not list what it knows.
    is_unknown = bool(codes) and gpu.architecture not in codes
    if is_unknown and machine.requests_code_for(variant.build.flags, gpu.architecture):
        range_text = f"nvcc {release} compiles for {codes[0]} to {codes[-1]}"
        message = f"{range_text}, not for {gpu.architecture} ({gpu.name})"
        raise BuildFailed(message, hint, "", no_compiler=True)
