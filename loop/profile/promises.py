"""What a manifest promises of its sources: what must not compile, and which template instances are there."""

import re
import shutil
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from loop.base.processes import Completed, Tick, run, together
from loop.builds.binaries import BINUTILS, defined_names
from loop.builds.build import linked
from loop.builds.compiler_errors import first_error, how_to_install
from loop.builds.reads import ENGLISH
from loop.gate.kernel import compile_all
from loop.machine.machine import compiler_version, cores
from loop.model.promises import MustNotCompile
from loop.model.resources import short_name
from loop.model.target import BuildRecipe, CAbiVariant, Target
from loop.profile.inspection import named
from loop.profile.model import InstancesOutput, MissingInstance, MustNotCompileOutput, RefusedSource
from loop.steps.context import Context, NoArguments, Result, Working

INDENTED = re.compile(r"^\s")
"""Compilers indent the source lines that they quote."""


def _chosen(context: Context) -> dict[str, CAbiVariant]:
    """The compiled variants of the session, also those that can only be emulated here."""
    return context.bench.compiled(named(context))


def must_not_compile(context: Context, arguments: NoArguments) -> Working[MustNotCompileOutput]:
    """Compile every source that has to be refused, by its variant's recipe, and read what the compiler says."""
    target, chosen = context.bench.target, _chosen(context)
    tries, missing = [], []
    for name, promised in chosen.items():
        variant, why = _buildable(target, name, promised) if promised.must_not_compile else (None, "")
        missing += [f"what must not compile of {name}: {why}"] if why else []
        if variant is not None:
            tries += [_try(context, name, variant.build, source) for source in variant.must_not_compile]
    checks = yield from together(tries, cores())
    return Result(_refusals(checks, missing))


def _buildable(target: Target, name: str, variant: CAbiVariant) -> tuple[CAbiVariant | None, str]:
    """The variant built by its own recipe, or by the emulator's without its compiler; and what that leaves out."""
    if compiler_version(variant.build.compiler) is not None:
        return variant, ""
    lacks = f"{variant.build.compiler}: no such compiler on the PATH"
    if variant.emulation is not None and compiler_version(variant.emulation.compiler) is not None:
        says = f"{lacks}; looked at as {variant.emulation.compiler} builds it for the emulator"
        return target.emulation(name), says
    return None, f"{lacks}; {how_to_install(variant.build.compiler)}"


def _try(
    context: Context, name: str, recipe: BuildRecipe, source: MustNotCompile
) -> Generator[Tick, None, RefusedSource]:
    folder = Path(tempfile.mkdtemp(prefix="refused-", dir=context.bench.scratch))
    try:
        flags = [flag for flag in recipe.flags if flag not in linked(recipe)]
        place = [f"-I{context.bench.include}", "-c", source.source, "-o", str(folder / "refused.o")]
        command = [recipe.compiler, *flags, *source.flags, *place]
        note = f"refusing {source.source}"
        completed = yield from run(
            command, cwd=context.task.folder, limit_s=context.kill_after_s, env=ENGLISH, note=note
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    status, message = _outcome(completed, source.says)
    return RefusedSource.model_validate(
        {"variant": name, "title": source.title, "status": status, "message": message}
    )


def _outcome(done: Completed, says: str) -> tuple[str, str]:
    """`refused`, `compiled` or `other`, and the compiler's words for it."""
    if done.ok:
        return "compiled", "it compiles"
    if done.timed_out or done.code < 0:
        return "other", f"the compiler was {done.how}" if done.timed_out else f"the compiler {done.how}"
    lines = [line for line in (done.errors + done.output).splitlines() if not INDENTED.match(line)]
    first = first_error(done.errors) or first_error(done.output) or done.how
    promised = next((line for line in lines if says in line), None)
    return ("refused", promised.strip()) if promised else ("other", first)


def _refusals(checks: Sequence[RefusedSource], missing: Sequence[str]) -> MustNotCompileOutput:
    bad = [check for check in checks if check.status != "refused"]
    message = f"{len(checks)} of {len(checks)} bad configurations are refused, each in its own words"
    if not checks:
        message = "nothing was compiled" if missing else "the manifest names nothing that must not compile"
    hint = None
    if bad:
        first, more = bad[0], f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        what, hint = "it compiles", "assert it at compile time: static_assert(condition, message)"
        if first.status != "compiled":
            what = f"refused for another reason: {first.message}"
            hint = "make it wrong in the way that is meant and in no other, or mend `says` in target.yaml"
        message = f"{first.variant}, {first.title}: {what}{more}"
    return MustNotCompileOutput(
        ok=not bad, message=message, hint=hint, not_exercised=tuple(missing), checks=tuple(checks)
    )


def instances(context: Context, arguments: NoArguments) -> Working[InstancesOutput]:
    """Look up every promised template instance in its variant's built library."""
    chosen = {name: variant for name, variant in _chosen(context).items() if variant.instances}
    buildable: dict[str, CAbiVariant] = {}
    skipped: list[str] = []
    for name, promised in chosen.items():
        variant, why = _buildable(context.bench.target, name, promised)
        skipped += [f"instances of {name}: {why}"] if why else []
        buildable |= {name: variant} if variant else {}
    built, failures = yield from compile_all(context, buildable, to_run=False)
    count, missing = 0, list[MissingInstance]()
    for build in built:
        names = yield from defined_names(Path(build.library))
        if names is None:
            skipped.append(f"instances of {build.variant}: there is no nm to read the library with; {BINUTILS}")
            continue
        there = {_canonical(short_name(name)) for name in names}
        for instance in chosen[build.variant].instances:
            for symbol, line in instance.promised():
                count += 1
                if _canonical(symbol) not in there:
                    fields = {"variant": build.variant, "symbol": symbol, "file": instance.file, "line": line}
                    missing.append(MissingInstance.model_validate(fields))
    message, hint = f"all {count} promised instances are there", None
    if not count:
        message = "nothing was looked up" if skipped else "the manifest promises no instances"
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{missing[0].variant} has no {missing[0].symbol}{more}"
        files: dict[str, list[str]] = {}
        for absent in missing:
            files.setdefault(absent.file, []).append(absent.line)
        hint = "; ".join(f"add to {file}: {' '.join(dict.fromkeys(lines))}" for file, lines in files.items())
    if failures:
        message, hint = failures[0].message, failures[0].hint
    output = InstancesOutput(
        ok=not missing and not failures,
        message=message,
        hint=hint,
        not_exercised=tuple(skipped),
        promised=count,
        missing=tuple(missing),
    )
    return Result(output)


def _canonical(name: str) -> str:
    """A name without the spaces that demanglers and people put differently."""
    return "".join(name.split())
