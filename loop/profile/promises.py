"""Check the manifest's promises: sources that must not compile, and template instances."""

import re
import tempfile
from collections.abc import Generator
from pathlib import Path

from loop.base.processes import Tick, run, run_side_by_side
from loop.builds.build import first_error, how_to_install, linked_libraries
from loop.builds.known_builds import ENGLISH_MESSAGES
from loop.builds.resources import BINUTILS, read_defined_names
from loop.gate.kernel import compile_all
from loop.machine.machine import compiler_version, cores
from loop.model.resources import short_name
from loop.model.target import BuildRecipe, CAbiVariant, MustNotCompile
from loop.profile.inspection import variant_names
from loop.profile.model import MissingInstance, PromisesOutput, RefusedSource
from loop.steps.context import Context, NoArguments, Result, RunningAction

INDENTED = re.compile(r"^\s")
"""Matches quoted source lines, which compilers indent."""


def _variants_with_promises(context: Context, what: str, field: str) -> tuple[dict[str, CAbiVariant], list[str]]:
    """Variants with promises in `field` of the manifest, and messages for skipped ones. A variant uses its own
    recipe, or the emulator's if its compiler is missing. `what`: the promises in words, for messages."""
    target, missing = context.bench.target, list[str]()
    variants: dict[str, CAbiVariant] = {}
    for name, variant in context.bench.compiled_variants(variant_names(context)).items():
        compiler, emulation = variant.build.compiler, variant.emulation
        lacks = f"{what} of {name}: {compiler}: no such compiler on the PATH"
        if not getattr(variant, field):
            continue
        if compiler_version(compiler) is not None:
            variants[name] = variant
        elif emulation is not None and compiler_version(emulation.compiler) is not None:
            variants[name] = target.emulated_variant(name)
            missing.append(f"{lacks}; looked at as {emulation.compiler} builds it for the emulator")
        else:
            missing.append(f"{lacks}; {how_to_install(compiler)}")
    return variants, missing


def must_not_compile(context: Context, arguments: NoArguments) -> RunningAction[PromisesOutput]:
    """Compile every source that must be refused, and check the compiler's message."""
    variants, missing = _variants_with_promises(context, "what must not compile", "must_not_compile")
    tries = [
        _compile_source(context, name, variant.build, source)
        for name, variant in variants.items()
        for source in variant.must_not_compile
    ]
    checks = yield from run_side_by_side(tries, cores())
    bad, hint = [check for check in checks if check.status != "refused"], None
    message = f"{len(checks)} of {len(checks)} bad configurations are refused, each in its own words"
    if not checks:
        message = "nothing was compiled" if missing else "the manifest names nothing that must not compile"
    if bad:
        first, more = bad[0], f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        what, hint = "it compiles", "assert it at compile time: static_assert(condition, message)"
        if first.status != "compiled":
            what = f"refused for another reason: {first.message}"
            hint = "make it wrong in the way that is meant and in no other, or mend `says` in target.yaml"
        message = f"{first.variant}, {first.title}: {what}{more}"
    facts = {"ok": not bad, "message": message, "hint": hint}
    return Result(PromisesOutput(**facts, not_exercised=tuple(missing), checks=tuple(checks)))


def _compile_source(
    context: Context, name: str, recipe: BuildRecipe, source: MustNotCompile
) -> Generator[Tick, None, RefusedSource]:
    """Compile one source that must not compile, by a variant's recipe."""
    with tempfile.TemporaryDirectory(prefix="refused-", dir=context.bench.scratch) as folder:
        flags = [flag for flag in recipe.flags if flag not in linked_libraries(recipe)]
        place = [f"-I{context.bench.include}", "-c", source.source, "-o", f"{folder}/refused.o"]
        command = [recipe.compiler, *flags, *source.flags, *place]
        note, limit_s = f"refusing {source.source}", context.kill_after_s
        done = yield from run(command, cwd=context.task.folder, limit_s=limit_s, env=ENGLISH_MESSAGES, note=note)
    lines = [line for line in (done.errors + done.output).splitlines() if not INDENTED.match(line)]
    promised = next((line.strip() for line in lines if source.says in line), None)
    status, message = "other", first_error(done.errors) or first_error(done.output) or done.ending
    if done.succeeded:
        status, message = "compiled", "it compiles"
    elif done.timed_out or done.code < 0:
        message = f"the compiler was {done.ending}" if done.timed_out else f"the compiler {done.ending}"
    elif promised:
        status, message = "refused", promised
    return RefusedSource.model_validate(
        {"variant": name, "title": source.title, "status": status, "message": message}
    )


def instances(context: Context, arguments: NoArguments) -> RunningAction[PromisesOutput]:
    """Look up every promised template instance in its variant's built library."""
    variants, skipped = _variants_with_promises(context, "instances", "instances")
    built, failures = yield from compile_all(context, variants, will_run=False)
    count, missing = 0, list[MissingInstance]()
    for build in built:
        names = read_defined_names(Path(build.library))
        if names is None:
            skipped.append(f"instances of {build.variant}: there is no nm to read the library with; {BINUTILS}")
            continue
        defined = {_canonical(short_name(name)) for name in names}
        for instance in variants[build.variant].instances:
            for symbol, line in instance.required_symbols():
                count += 1
                if _canonical(symbol) not in defined:
                    place = {"file": instance.file, "line": line}
                    missing.append(MissingInstance(variant=build.variant, symbol=symbol, **place))
    message, hint = f"all {count} promised instances are there", None
    if not count:
        message = "nothing was looked up" if skipped else "the manifest promises no instances"
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{missing[0].variant} has no {missing[0].symbol}{more}"
        hint = "; ".join(dict.fromkeys(f"add to {absent.file}: {absent.line}" for absent in missing))
    if failures:
        message, hint = failures[0].message, failures[0].hint
    facts = {"ok": not missing and not failures, "message": message, "hint": hint, "promised": count}
    return Result(PromisesOutput(**facts, not_exercised=tuple(skipped), missing=tuple(missing)))


def _canonical(name: str) -> str:
    """A name without spaces, because demanglers and people place them differently."""
    return "".join(name.split())
