"""The five checks of the environment, each with the command that mends it."""

from collections.abc import Generator
from typing import Any, TypeVar

from loop.base.processes import Tick
from loop.builds import build
from loop.builds.compiler_errors import BuildFailed
from loop.gate.model import DeviceOutput, ExtensionOutput, LibrariesOutput, NumpyOutput, TorchOutput
from loop.gate.toolkit import misfit, must_fit
from loop.gate.verify import Job, verify
from loop.machine.gpus import gpus
from loop.machine.toolkits import too_new
from loop.model.base import Model
from loop.model.measurement import Build
from loop.model.output import Output
from loop.model.pattern import Text
from loop.model.record import Machine
from loop.model.workloads import expand
from loop.steps.context import Context, NoArguments, Result, Working
from loop.workers.bench import Bench
from loop.workers.messages import Examined

EXAMINE_LIMIT_S = 120.0
Kind = TypeVar("Kind", bound=Output)


class Requirement(Model):
    """How new a package has to be."""

    at_least: Text
    """Oldest version that will do, as in 2.4."""


def torch(context: Context, arguments: Requirement) -> Working[TorchOutput]:
    """torch: present, new enough, built for what is here."""
    found = yield from context.bench.examine("torch", EXAMINE_LIMIT_S)
    output = TorchOutput.model_validate(_known(found))
    if output.ok and not new_enough(output.version, arguments.at_least):
        output = _refuse(output, f"torch {output.version} is older than {arguments.at_least}")
    if output.ok and context.bench.device == "cuda":
        output = _on_gpu(output)
    return Result(output.model_copy(update={"identity": f"torch {output.version} {output.cuda_build}"}))


def _on_gpu(output: TorchOutput) -> TorchOutput:
    """The same, not ok where this torch cannot use the GPU here."""
    found = gpus()
    if output.cuda_build is None:
        message = f"torch {output.version} is a CPU build, the session runs on cuda"
        return _refuse(output, message, "pip install --force-reinstall torch, from an index with CUDA builds")
    conflict = too_new("torch built for CUDA", output.cuda_build, found.cuda, found.driver)
    if not conflict:
        return output
    older = f"CUDA {found.cuda[0]}" if found.cuda else "an older CUDA"
    return _refuse(output, conflict, f"install a newer driver, or a torch that is built for {older}")


def numpy(context: Context, arguments: Requirement) -> Working[NumpyOutput]:
    """NumPy: present, new enough, and of one mind with torch about memory."""
    found = yield from context.bench.examine("numpy", EXAMINE_LIMIT_S)
    output = NumpyOutput.model_validate(_known(found))
    if output.ok and not new_enough(output.version, arguments.at_least):
        output = _refuse(output, f"NumPy {output.version} is older than {arguments.at_least}")
    return Result(output.model_copy(update={"identity": f"numpy {output.version}"}))


def device(context: Context, arguments: NoArguments) -> Working[DeviceOutput]:
    """The device: there, computing rightly, its driver new enough for the toolkit.

    Where it is not, nothing is run on it.
    """
    bench, machine = context.bench, context.task.machine
    facts, where = _gpu_facts(machine) if bench.device == "cuda" else ({}, machine.processor)
    variants = bench.compiled(context.task.variants).values()
    problem = next((why for one in variants if (why := misfit(one))), None)
    if problem:
        output = DeviceOutput(ok=False, message=problem[0], hint=problem[1], device=bench.device, **facts)
    else:
        found = yield from bench.examine("device", EXAMINE_LIMIT_S)
        output = DeviceOutput.model_validate({"name": machine.processor, **facts, **_known(found)})
    message = f"{where or bench.device}: {output.message}"
    identity = f"{bench.device} {output.name} {machine.name} {output.driver}"
    return Result(output.model_copy(update={"message": message, "identity": identity}))


def _gpu_facts(machine: Machine) -> tuple[dict[str, Any], str]:
    """What is known of the GPU that everything runs on, and which of several it is."""
    found = gpus()
    facts: dict[str, Any] = {"driver": found.driver, "toolkit": machine.nvcc, "name": ""}
    if found.cuda:
        facts["cuda"] = f"{found.cuda[0]}.{found.cuda[1]}"
    if found.first:
        first = found.first
        facts |= {"name": first.name, "uuid": first.uuid, "capability": first.capability, "facts": first.facts}
    return facts, found.chosen


def libraries(context: Context, arguments: NoArguments) -> Working[LibrariesOutput]:
    """Shared libraries: all found, no runtime twice."""
    found = yield from context.bench.examine("libraries", EXAMINE_LIMIT_S)
    return Result(LibrariesOutput.model_validate(_known(found)))


def extension(context: Context, arguments: NoArguments) -> Working[ExtensionOutput]:
    """The built variants: found, fresh, loading, and right on the smallest workload. None yet is no fault."""
    ready: list[str] = []
    for name, variant in context.bench.compiled(context.task.variants).items():
        try:
            must_fit(variant)
            yield from build.scan(variant, context.task.folder, context.bench.include)
        except BuildFailed as failed:
            found = _extension("missing", f"{name} needs a build: {failed.message}", failed.hint)
            return Result(found.model_copy(update={"ok": not failed.no_compiler}))
        bench = context.bench
        built = build.find(name, variant, context.task.folder, cache=bench.cache, include=bench.include)
        if built is None:
            return Result(_extension("missing", f"{name} needs a build", None))
        problem = yield from _smoke(context.bench, name, built)
        if problem:
            return Result(
                _extension("broken", f"{name}: {problem}", f"`{context.command('kernels', 'verify', name)}`")
            )
        ready.append(name)
    message = f"{', '.join(ready)}: fresh, loads, answers" if ready else "no variant here has to be built"
    return Result(_extension("ready", message, None))


def _extension(state: str, message: str, hint: str | None) -> ExtensionOutput:
    fields = {"ok": state != "broken", "message": message, "hint": hint, "extension": state}
    return ExtensionOutput.model_validate(fields)


def _smoke(bench: Bench, name: str, built: Build) -> Generator[Tick, None, str]:
    """What is wrong with a build on the first workload of the target; empty when nothing is."""
    first = next(iter(bench.target.workloads))
    workload = expand(bench.target, [first], bench.target.dtypes[bench.device])[0]
    checks = yield from verify(bench, [Job(bench.side(name, built), [workload], layouts=False)])
    failure = checks[0].first_failure
    return failure.message if failure else ""


def _known(found: Examined) -> dict[str, Any]:
    return {**found.facts, "ok": found.ok, "message": found.message}


def _refuse(output: Kind, message: str, hint: str | None = None) -> Kind:
    return output.model_copy(update={"ok": False, "message": message, "hint": hint})


def new_enough(version: str, at_least: str) -> bool:
    """Whether a version such as `2.13.0+cpu` is `2.4` or newer."""
    return _numbers(version) >= _numbers(at_least)


def _numbers(version: str) -> list[int]:
    words = version.split("+")[0].split(".")
    return [int("".join(c for c in word if c.isdigit()) or 0) for word in words[:3]]
