"""Check the manifest's promises: sources that must not compile, and template instances."""

import tempfile
from pathlib import Path
from typing import Literal

from loop.base.processes import Waiting, run, run_side_by_side
from loop.builds.build import first_error, how_to_install, linked_libraries
from loop.builds.known_builds import ENGLISH_MESSAGES
from loop.builds.resources import BINUTILS, read_defined_names, short_name
from loop.gate.kernel import compile_all
from loop.machine.machine import compiler_version, cores
from loop.model.base import Model
from loop.model.output import Output
from loop.model.target import BuildRecipe, CAbiVariant, MustNotCompile
from loop.profile.resource_actions import variant_names
from loop.steps.context import Context, NoArguments, Result, RunningAction


class RefusedSource(Model):
    """A source that must not compile, and what the compiler did with it."""

    variant: str
    """Variant whose build recipe was used."""
    title: str
    """Name of the error in the source."""
    status: Literal["refused", "compiled", "other"]
    """Refused with the promised message; compiled; or refused for another reason."""
    message: str
    """The compiler's error, or what happened instead."""


class MissingInstance(Model):
    """A promised template instance that a library does not hold."""

    variant: str
    """Name of the variant."""
    symbol: str
    """The instance, demangled."""
    file: str
    """Where its explicit instantiation belongs."""
    line: str
    """The line to add there."""


class PromisesOutput(Output):
    """Checks of the manifest's promises: sources that must not compile, and template instances."""

    actions = ("kernel.must_not_compile", "kernel.instances")

    checks: tuple[RefusedSource, ...] = ()
    """A check for each source that must not compile, and variant."""
    promised: int = 0
    """Number of template instances that were looked up."""
    missing: tuple[MissingInstance, ...] = ()
    """Promised instances that a library lacks."""


def _find_promises(
    context: Context, field: str, label: str
) -> tuple[dict[str, CAbiVariant], list[str]]:
    """Variants with promises in `field` of the manifest, and messages on missing compilers. Without
    its compiler a variant uses the emulator's recipe, if it has one. `label`: for messages."""
    target, missing = context.bench.target, list[str]()
    variants: dict[str, CAbiVariant] = {}
    for name, variant in context.bench.compiled_variants(variant_names(context)).items():
        compiler, emulation, remedy = variant.build.compiler, variant.emulation, ""
        if not getattr(variant, field):
            continue
        if compiler_version(compiler) is not None:
            variants[name] = variant
        elif emulation is not None and compiler_version(emulation.compiler) is not None:
            variants[name] = target.emulated_variant(name)
            remedy = f"looked at as {emulation.compiler} builds it for the emulator"
        else:
            remedy = how_to_install(compiler)
        if remedy:
            missing.append(f"{label} of {name}: {compiler}: no such compiler on the PATH; {remedy}")
    return variants, missing


def must_not_compile(context: Context, arguments: NoArguments) -> RunningAction[PromisesOutput]:
    """Compile every source that must be refused, and check the compiler's message."""
    variants, missing = _find_promises(context, "must_not_compile", "what must not compile")
    compilations = []
    for name, variant in variants.items():
        for source in variant.must_not_compile:
            compilations.append(_compile_source(context, name, variant.build, source))
    checks = yield from run_side_by_side(compilations, cores())
    failures, hint = [check for check in checks if check.status != "refused"], None
    count = len(checks)
    message = f"{count} of {count} bad configurations are refused, each in its own words"
    if not checks:
        nothing = "the manifest names nothing that must not compile"
        message = "nothing was compiled" if missing else nothing
    if failures:
        first, more = failures[0], f"; and {len(failures) - 1} more" if len(failures) > 1 else ""
        problem = "it compiles"
        hint = "assert it at compile time: static_assert(condition, message)"
        if first.status != "compiled":
            problem = f"refused for another reason: {first.message}"
            hint = "make it wrong only in the way that is meant, or mend `says` in target.yaml"
        message = f"{first.variant}, {first.title}: {problem}{more}"
    fields = {"not_exercised": tuple(missing), "checks": tuple(checks)}
    output = PromisesOutput(ok=not failures, message=message, hint=hint, **fields)
    return Result(output, idle=not checks)


def _compile_source(
    context: Context, name: str, recipe: BuildRecipe, source: MustNotCompile
) -> Waiting[RefusedSource]:
    """Compile one source that must not compile, by a variant's build recipe. It is `refused` only
    if a line of the compiler's messages holds the text that the manifest promises (`says`)."""
    with tempfile.TemporaryDirectory(prefix="refused-", dir=context.bench.scratch) as folder:
        flags = [flag for flag in recipe.flags if flag not in linked_libraries(recipe)]
        paths = [f"-I{context.bench.include}", "-c", source.source, "-o", f"{folder}/refused.o"]
        command = [recipe.compiler, *flags, *source.flags, *paths]
        note, limit_s = f"refusing {source.source}", context.kill_after_s
        compiled = yield from run(
            command, cwd=context.task.folder, limit_s=limit_s, env=ENGLISH_MESSAGES, note=note
        )
    printed = (compiled.errors + compiled.output).splitlines()
    lines = [line.strip() for line in printed if line[:1].strip()]  # Quoted source is indented.
    promised = next((line for line in lines if source.says in line), None)
    status: Literal["refused", "compiled", "other"] = "other"
    message = first_error(compiled.errors) or first_error(compiled.output) or compiled.ending
    if compiled.succeeded:
        status, message = "compiled", "it compiles"
    elif compiled.timed_out or compiled.code < 0:  # Killed at its limit, or by a signal.
        message = f"the compiler {'was ' if compiled.timed_out else ''}{compiled.ending}"
    elif promised:
        status, message = "refused", promised
    return RefusedSource(variant=name, title=source.title, status=status, message=message)


def instances(context: Context, arguments: NoArguments) -> RunningAction[PromisesOutput]:
    """Look up every promised template instance in its variant's built library."""
    variants, skipped = _find_promises(context, "instances", "instances")
    built, failures = yield from compile_all(context, variants, will_run=False)
    count, missing = 0, list[MissingInstance]()
    for build in built:
        names = read_defined_names(Path(build.library))
        if names is None:
            why = f"there is no nm to read the library with; {BINUTILS}"
            skipped.append(f"instances of {build.variant}: {why}")
            continue
        # Without spaces, because demanglers and people place them differently.
        defined = {"".join(short_name(name).split()) for name in names}
        for instance in variants[build.variant].instances:
            for symbol, line in instance.required_symbols():
                count += 1
                if "".join(symbol.split()) not in defined:
                    place = {"file": instance.file, "line": line}
                    missing.append(MissingInstance(variant=build.variant, symbol=symbol, **place))
    message, hint = f"all {count} promised instances are there", None
    if not count:
        message = "nothing was looked up" if skipped else "the manifest promises no instances"
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{missing[0].variant} has no {missing[0].symbol}{more}"
        remedies = [f"add to {instance.file}: {instance.line}" for instance in missing]
        hint = "; ".join(dict.fromkeys(remedies))
    if failures:
        message, hint = failures[0].message, failures[0].hint
    fields = {"promised": count, "not_exercised": tuple(skipped), "missing": tuple(missing)}
    ok = not missing and not failures
    return Result(PromisesOutput(ok=ok, message=message, hint=hint, **fields), idle=not count)
