"""Actions that build, load and verify the selected variants, and find a known-good build."""

import functools
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from loop.base.documents import hash_files
from loop.base.errors import LoopError, WorkFailed, remark_once
from loop.base.locks import locked_temporary_folder
from loop.base.processes import Waiting, run_side_by_side
from loop.builds import build
from loop.builds.build import Buildable, BuildFailed, buildable_variants
from loop.calls.call import Refused
from loop.formats.model import ANSWERS
from loop.gate.environment import require_fit
from loop.gate.model import BuildOutput, LoadOutput, ShareOutput, SourcesOutput
from loop.gate.verify import MAX_HUNG, Job, TimeAllowance, group_by_name, merge_checks, workload_key
from loop.gate.verify import verify as verify_sides
from loop.jobs.folder import JobFolder
from loop.library.definitions import Project, read_file
from loop.library.targets import source_files
from loop.library.trust import read_origin
from loop.machine.machine import cores
from loop.model.base import Model
from loop.model.dtypes import Device, Dtype
from loop.model.measurement import BASELINE, Build, NoSpeedVerdict, VariantChecks, Weaknesses
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import KnownGood, SessionHead
from loop.model.target import ANY, CAbiVariant, Target, Workload
from loop.model.workloads import count_operations, evaluate_work, expand_sets, explain_unsupported
from loop.report import format as say
from loop.repository.worktree import export_commit
from loop.steps import context as steps_context
from loop.steps.context import Context, NoArguments, Result, ResultLifetime, RunningAction
from loop.steps.spread import Part, result_of_job, run_jobs
from loop.store import sessions
from loop.store.sessions import earlier_sessions
from loop.workers.bench import UNJUDGED_HINT, Bench, Fitting, Side, fit_workloads
from loop.workers.program import START_LIMIT_S, WorkerLost

MOST_PROBED, QUICK_S = 4, 0.2
"""Most workloads on which `loop` tests what the reference reads; seconds that each may take."""
UNREAD_KINDS = ("unread", "unread_halves", "ignored", "unmoved", "initial")
"""Weaknesses that a changed input reveals; the others are known of the values that were drawn."""
SOURCES_FINE = "one translation unit a variant, no framework headers"
NOT_COMPILED = "no variant is compiled for this device"


class SourceLimits(Model):
    """Limits on a variant's sources."""

    units: Annotated[int, Field(ge=1)] = 1
    """Most translation units of a variant."""


def sources(context: Context, arguments: SourceLimits) -> RunningAction[SourcesOutput]:
    """Check sources before compiling: number of translation units, and no framework headers.
    Ends at the first variant whose sources cannot be read; `units` is the largest number."""
    units, headers, problems, identities = 0, set[str](), list[str](), list[str]()
    folder = context.task.folder
    for name, variant in context.bench.compiled_variants(context.task.variants).items():
        try:
            scan = yield from build.scan_sources(variant, folder, context.bench.include)
        except BuildFailed as error:
            message = f"{name}: {error.message}"
            return Result(SourcesOutput(ok=False, message=message, hint=error.hint))
        identities.append(f"{name}={scan.identity}")
        units = max(units, len(variant.sources))
        headers |= set(scan.framework_headers)
        if len(variant.sources) > arguments.units:
            count = len(variant.sources)
            problems.append(f"{name} has {count} translation units: include them from one file")
    if headers:
        first = sorted(headers)[0]
        problems.append(f"framework headers are included, {first} first: use native types")
    output = SourcesOutput(
        ok=not problems,
        message="; ".join(problems) or (SOURCES_FINE if identities else NOT_COMPILED),
        identity=" ".join(identities),
        units=units,
        framework_headers=tuple(sorted(headers)),
    )
    return Result(output, idle=not identities)  # Idle: no variant is compiled.


def build_variants(context: Context, arguments: NoArguments) -> RunningAction[BuildOutput]:
    """Compile the variants that are not in the cache. A failure does not stop other builds.
    Emulated variants are built for the emulator. Message and hint are of the first failure."""
    selected = variants_to_build(context, context.task.variants)
    variants = {**selected, **context.bench.emulated_variants(context.task.emulated)}
    builds, failures = yield from compile_all(context, variants)
    summaries = []
    for library in builds:
        if library.compiled:
            how = "cached" if library.cached else f"compiled in {library.seconds:.1f} s"
            summaries.append(f"{library.variant} {how}")
    summaries += [library.note for library in builds if library.note]
    message = ", ".join(summaries) if builds else "no variant is compiled"
    output = BuildOutput(
        ok=not failures,
        message=failures[0].message if failures else message,
        hint=failures[0].hint if failures else None,
        identity=" ".join(f"{library.variant}={library.build_id}" for library in builds),
        builds=builds,
        seconds=sum(library.seconds for library in builds if not library.cached),
    )
    return Result(output, idle=not variants)


def variants_to_build(context: Context, names: Iterable[str]) -> Mapping[str, Buildable]:
    """Of the named variants, those that need a build. A Python variant's build is a copy of its
    files, and needed only if the session may change them: a check can tell then which one ran."""
    bench, may_change = context.bench, context.task.has_change_steps
    return buildable_variants(bench, names) if may_change else bench.compiled_variants(names)


def compile_all(
    context: Context, variants: Mapping[str, Buildable], *, will_run: bool = True
) -> Waiting[tuple[tuple[Build, ...], list[BuildFailed]]]:
    """Build variants in parallel, one compiler per core; returns builds and failures, in the order
    of `variants`. `will_run`: builds run here, so that one which the driver cannot run fails."""
    bench, folder = context.bench, context.task.folder

    def try_build(name: str) -> Waiting[Build | BuildFailed]:
        variant, locations = variants[name], {"cache": bench.cache, "include": bench.include}
        limit_s = context.kill_after_s
        try:
            if will_run and isinstance(variant, CAbiVariant):
                require_fit(variant)
            return (yield from build.build(name, variant, folder, **locations, limit_s=limit_s))
        except BuildFailed as error:
            message = f"{name}: {error.message}"
            return BuildFailed(message, error.hint, error.log, no_compiler=error.no_compiler)

    # Most template instances take longest. Begun last, they would keep one core busy at the end.
    instance_counts = dict.fromkeys(variants, 0)
    for name, variant in variants.items():
        for template in getattr(variant, "instances", ()):  # A Python variant has none.
            instance_counts[name] += len([*template.required_symbols()])
    longest_first = sorted(variants, key=instance_counts.__getitem__, reverse=True)
    ended = yield from run_side_by_side(map(try_build, longest_first), cores())
    results = [ended[longest_first.index(name)] for name in variants]
    finished = tuple(result for result in results if isinstance(result, Build))
    return finished, [result for result in results if isinstance(result, BuildFailed)]


def build_sides(
    context: Context, names: Iterable[str], flags: Sequence[str] = ()
) -> Waiting[tuple[dict[str, Side], list[BuildFailed]]]:
    """Build variants of the session, some for the emulator. Returns name to side of those that
    compile or need no build, and the failures of the others. `flags`: more compiler flags."""
    bench, emulated_names = context.bench, set(names) & {*context.task.emulated}
    emulated = bench.emulated_variants(emulated_names)
    others = [name for name in names if name not in emulated]
    variants = {**variants_to_build(context, others), **emulated}
    for name, variant in variants.items():
        if flags and isinstance(variant, CAbiVariant):
            recipe = variant.build.model_copy(update={"flags": (*variant.build.flags, *flags)})
            variants[name] = variant.model_copy(update={"build": recipe})
    builds, failures = yield from compile_all(context, variants)
    build_by_name = {build.variant: build for build in builds}
    sides = dict[str, Side]()
    for name in names:
        if name in build_by_name or name not in variants:
            library = build_by_name.get(name)
            sides[name] = bench.make_side(name, library, emulated=name in emulated)
    return sides, failures


def usual_dtype(bench: Bench, side: Side) -> Dtype:
    """Element type to check a variant in: the target's for its device, else its own first."""
    device_dtype = bench.target.dtypes["cuda" if side.emulated else bench.device]
    return device_dtype if device_dtype in side.dtypes else side.dtypes[0]


def load(context: Context, arguments: NoArguments) -> RunningAction[LoadOutput]:
    """Load every built library in its own process, to check its symbols and build id.
    The step ends at the first that does not load; variants without a build are built first."""
    bench = context.bench
    variants = bench.compiled_variants(context.task.variants)
    built, failures = yield from compile_all(context, variants)
    if failures:
        return Result(LoadOutput(ok=False, message=failures[0].message, hint=failures[0].hint))
    for library in built:
        with bench.start_worker(bench.make_side(library.variant, library)) as worker:
            try:
                yield from worker.receive(START_LIMIT_S, f"loading {library.variant}")
            except (Refused, WorkerLost) as error:
                hint = "build again; define or instantiate a missing symbol in its translation unit"
                return Result(LoadOutput(ok=False, message=f"{library.variant} {error}", hint=hint))
    loaded = tuple(library.variant for library in built)
    message = f"{', '.join(loaded)}: loads, build id as on disk" if loaded else NOT_COMPILED
    return Result(LoadOutput(ok=True, message=message, loaded=loaded), idle=not loaded)


def workloads(
    context: Context, sets: Iterable[str], seed: int | None = None, device: Device | None = None
) -> tuple[Workload, ...]:
    """Workloads of the sets, without those that the session's last verification left `not judged`.
    `seed`: of their values; `device`: of the default element type; None: the session's."""
    target, unjudged = context.bench.target, unjudged_workloads(context)
    dtype = target.dtypes[device or context.bench.device]
    in_sets = expand_sets(target, sets, dtype, context.task.seed if seed is None else seed)
    return tuple(workload for workload in in_sets if workload.name not in unjudged)


def unjudged_workloads(context: Context) -> dict[str, str]:
    """Name to reason of workloads that the last verification left `not judged`."""
    verification = context.latest_output("kernel.verify", VerifyOutput)
    sides = (*verification.variants, verification.control) if verification else ()
    checks = [check for side in sides if side for check in side.checks]
    return {check.workload.name: check.message for check in checks if check.status == "not judged"}


def planned_check_sets(context: Context) -> list[str]:
    """Workload sets of the plan that are checked and not timed."""
    return [name for name in context.task.plan.checks if name in context.bench.target.workloads]


def unplanned_sets(context: Context) -> list[str]:
    """Workload sets of the target that the plan neither times nor checks."""
    plan, sets = context.task.plan, context.bench.target.workloads
    return [name for name in sets if name not in (*plan.workloads, *plan.checks)]


def distinct_workloads(
    workloads: Iterable[Workload], beyond: Iterable[Workload] = ()
) -> tuple[Workload, ...]:
    """The workloads without duplicates (same name and seed), and without those of `beyond`."""
    workload_by_key = {workload_key(workload): workload for workload in workloads}
    for workload in beyond:
        workload_by_key.pop(workload_key(workload), None)
    return tuple(workload_by_key.values())


def describe_unverified_sets(
    context: Context, names: Sequence[str], missed: Sequence[Workload], device: Device | None = None
) -> list[str]:
    """At most one sentence: the sets not fully verified, and the command that verifies them.
    `names`: the variants; `missed`: workloads that were not verified."""
    missed_keys, set_texts = set(map(workload_key, missed)), []
    for set_name in context.bench.target.workloads:
        set_keys = set(map(workload_key, workloads(context, [set_name], device=device)))
        if missing := len(set_keys & missed_keys):
            share = f" ({missing} of {len(set_keys)} workloads not verified)"
            set_texts.append(set_name + share if missing < len(set_keys) else set_name)
    command, count = context.command("kernels", "verify", *names), say.count(len(set_texts), "set")
    return [f"{count} of workloads, {', '.join(set_texts)}: `{command}`"] if set_texts else []


class VerifyTerms(Model):
    """Arguments of `kernel.verify`."""

    seeds: Annotated[int, Field(ge=1, le=1000)] = 2
    """Seeds (sets of values) for each timed workload; other workloads get one."""
    enough: bool = False
    """Whether the first failure of a variant ends its checks."""
    others_s: Annotated[float, Field(ge=0)] = 5.0
    """Seconds for sets that the plan does not name; workloads without time are reported."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads of each call. Default: all cores, then timed workloads again with fewer."""


class ShareTerms(VerifyTerms):
    """Arguments of `kernel.verify_share`, the part of a verification that one job does."""

    only: tuple[str, ...] = ()
    """Names of the workloads to verify, where other jobs verify the others; empty: all."""


def verify(context: Context, arguments: VerifyTerms) -> RunningAction[VerifyOutput]:
    """Verify the selected variants, and the baseline as a control, on all workloads against
    float64. With an executor, its jobs check one share of the workloads each."""
    side_by_name, failures = yield from build_sides(context, context.task.variants)
    sides, jobs = [*side_by_name.values()], list[JobFolder]()
    all_workloads = [*chain(*choose_workloads(context, arguments.seeds))]
    if context.task.campaign.executor and sides:
        # Split by workloads, not by variants, so that each reference is computed once. Workloads of
        # one name stay together, and are dealt out like cards, those with most work first.
        plan, groups, parts = context.task.plan, group_by_name(all_workloads), list[Part]()
        operations_of = functools.partial(count_operations, context.bench.target)
        groups.sort(key=lambda group: -len(group) * operations_of(group[0]))
        count, names = min(context.task.campaign.width, len(groups)), [*side_by_name]
        for number in range(count):
            only = tuple(group[0].name for group in groups[number::count])
            title = f"verify {', '.join(names)}" + f", share {number + 1} of {count}" * (count > 1)
            job_arguments = ShareTerms(**dict(arguments), only=only if count > 1 else ())
            parts.append(Part(title, job_arguments, names, plan.workloads, plan.checks))
        jobs = yield from run_jobs(context, "kernel.verify_share", parts)
        shares = [result_of_job(job, ShareOutput).output for job in jobs]
    else:
        shares = [(yield from _verify_share(context, sides, ShareTerms(**dict(arguments))))]
    output = conclude_verification(context, shares, sides, all_workloads, failures)
    return Result(output.model_copy(update={"jobs": tuple(job.run_record for job in jobs)}))


def verify_share(context: Context, arguments: ShareTerms) -> RunningAction[ShareOutput]:
    """Make the checks of `kernel.verify` on a share of its workloads, as one job of an executor."""
    sides, failures = yield from build_sides(context, context.task.variants)
    if failures:
        raise WorkFailed(f"no build: {failures[0].message}", hint=failures[0].hint)
    return Result((yield from _verify_share(context, [*sides.values()], arguments)))


def choose_workloads(
    context: Context, seeds: int, device: Device | None = None
) -> tuple[tuple[Workload, ...], tuple[Workload, ...]]:
    """The workloads to verify: required ones (timed, with `seeds` sets of values each, or checked),
    and optional ones of unplanned sets, small ones first. `device`: of their element type."""
    target, required = context.bench.target, list[Workload]()
    dtype = target.dtypes[device or context.bench.device]
    expand = functools.partial(expand_sets, target, dtype=dtype, seed=context.task.seed)
    for workload in expand(context.task.plan.workloads):
        for number in range(seeds):  # One after the other, because they share buffers.
            required.append(workload.model_copy(update={"seed": workload.seed + number}))
    required += expand(planned_check_sets(context))
    optional = distinct_workloads(expand(unplanned_sets(context)), beyond=required)
    operations_of = functools.partial(count_operations, target)
    return distinct_workloads(required), tuple(sorted(optional, key=operations_of))


def _verify_share(
    context: Context, variant_sides: Sequence[Side], arguments: ShareTerms
) -> Waiting[ShareOutput]:
    """Verify these variants, and the baseline as a control, on the share's workloads; on a CPU also
    with fewer threads, unless given. WorkFailed if an answer edits a foreign task's files."""
    task_files, notes = hash_task_files(context.task.folder), list[str]()
    bench, (required, optional) = context.bench, choose_workloads(context, arguments.seeds)
    sides = [replace(side, threads=arguments.threads) for side in variant_sides]
    own_names, control = frozenset(arguments.only) or None, bench.make_side(BASELINE)
    chosen = (*required, *optional)
    fitting = fit_workloads(bench, chosen, [*sides, control], one_at_a_time=True)
    job_on = functools.partial(Job, own_names=own_names)
    jobs = [job_on(side, fitting.workloads, fail_fast=arguments.enough) for side in sides]
    dtype, plan = bench.target.dtypes[bench.device], context.task.plan
    planned = expand_sets(bench.target, plan.workloads, dtype, context.task.seed)
    timed = [workload for workload in planned if workload in fitting.workloads]
    fewer_threads = 3 if cores() > 3 else cores() - 1  # Odd: an odd number divides few sizes.
    if bench.device == "cpu" and arguments.threads is not None:
        notes.append(f"other numbers of threads than {arguments.threads}: leave out `--threads`")
    elif bench.device == "cpu" and not fewer_threads:
        notes.append("several threads: this machine has one core")
    elif bench.device == "cpu":
        rerun_sides = [replace(side, threads=fewer_threads) for side in sides]
        jobs += [job_on(side, timed, layouts=False, fail_fast=True) for side in rerun_sides]
    jobs.append(job_on(control, timed, layouts=False, control=True))
    allowance = TimeAllowance(arguments.others_s, optional)
    share = yield from _make_checks(bench, fitting.workloads, jobs, allowance)
    files_now = hash_task_files(context.task.folder)
    if edited := [path for path, digest in task_files.items() if files_now.get(path) != digest]:
        paths = ", ".join(map(str, edited))
        hint = "put the file back, then verify the answers one by one: that tells which edits it"
        message = f"an answer edited {paths} while it was judged: no verdict counts"
        raise WorkFailed(message, hint=hint)
    return share.model_copy(update={"no_room": fitting.exclusions, "notes": (*notes, *share.notes)})


def _make_checks(
    bench: Bench, workloads: Sequence[Workload], jobs: Sequence[Job], allowance: TimeAllowance
) -> Waiting[ShareOutput]:
    """Make the checks of these jobs, the last of which is the control's; find all blind spots."""
    *checked, control = yield from verify_sides(bench, jobs, allowance)
    hung = [checks for checks in checked if checks.count("hung") >= MAX_HUNG]
    place = "on the workloads after its call number"
    notes = [f"{checks.variant} {place} {checks.count('hung')} that hung" for checks in hung]
    return ShareOutput(
        ok=True,
        message=f"{len(checked)} sides verified",
        sides=tuple(checked),
        control=control,
        left_out=tuple(allowance.left_out),
        blind_spots=(yield from find_blind_spots(bench, workloads)),
        notes=(*notes, *bench.notes),
        zeros_pass=tuple(bench.workloads_passing_zeros),
    )


def hash_task_files(folder: Path) -> dict[Path, str]:
    """Path to hash of a foreign task's own files, without the answers; empty for another target."""
    if read_origin(folder) is None:
        return {}
    files = source_files(Project(folder, folder / "sessions", bundled=False))
    own_files = [path for path in files if ANSWERS not in path.relative_to(folder).parts]
    return {path: hash_files([path], folder) for path in own_files}


def find_blind_spots(bench: Bench, workloads: Sequence[Workload]) -> Waiting[Weaknesses]:
    """Mistakes that the values drawn so far cannot show, and inputs or attributes never read: the
    reference's output stays the same where the judge changes them. It tries MOST_PROBED quick
    workloads (QUICK_S) at most, the largest of each kind, as effects may need large sizes."""
    quick = [w for w in workloads if bench.reference_s.get(w.name, QUICK_S) < QUICK_S]
    largest_by_kind: dict[tuple[str, ...], Workload] = {}
    for workload in sorted(quick, key=lambda workload: -sum(workload.sizes.values())):
        if 0 not in workload.sizes.values():
            kind = (workload.values, *map(str, workload.attributes.values()))
            largest_by_kind.setdefault(kind, workload)
    # The largest, then others that share fewest values with it.
    first_kind, other_kinds = [*largest_by_kind][:1], [*largest_by_kind][1:]
    other_kinds.sort(key=lambda kind: sum(map(operator.eq, kind, first_kind[0])))
    probed = [largest_by_kind[kind] for kind in (first_kind + other_kinds)[:MOST_PROBED]]
    weaknesses = yield from bench.find_blind_spots(probed[0] if probed else None)
    for workload in probed[1:]:
        if not any(weaknesses.get(kind) for kind in UNREAD_KINDS):
            break  # All is read: further workloads cannot change that.
        weaknesses = common_weaknesses(weaknesses, (yield from bench.find_blind_spots(workload)))
    return weaknesses


def common_weaknesses(some: Weaknesses, others: Weaknesses) -> Weaknesses:
    """The weaknesses that both have; of a kind that only one was examined for, that one's."""
    common = dict[str, tuple[str, ...]]()
    for kind, names in {**others, **some}.items():
        common[kind] = tuple(name for name in names if name in others.get(kind, names))
    return common


BLIND_SPOTS = {
    "fixed": "{inputs} the same under every seed: never reads {them}",
    "single_valued": "{inputs} one value everywhere: reads one element of {them}",
    "nonnegative": "{inputs} never negative: is wrong below zero",
    "narrow": "{inputs} within 16 bits: keeps 16 bits of {them}",
    "from_zero": "{inputs} in order from 0 on in every call: expects a first 0",
    "untied": "{inputs} without two equal greatest or least values in a row: names another of them",
    "unread": "{inputs} not read by the reference on the workloads tried: never reads {them}",
    "unread_halves": "the second half of {names} is not read by the reference: is wrong there",
    "unmoved": "output {names} is the same whatever the inputs are: returns a constant",
    "initial": "weights {names} are all 1 or all 0, as the constructor leaves them: ignores them",
    "ignored": "attribute {names} changes no output on the workloads tried: ignores it",
    "finite": "no input is NaN or infinite: is wrong on these",
}
"""Weakness of the inputs (see `Weaknesses`): a fact, and what a kernel that it hides does."""


def describe_blind_spots(
    weaknesses: Weaknesses, target: Target, zeros_pass: Sequence[str], tried: Sequence[Workload]
) -> Iterator[str]:
    """Sentences on mistakes that a target's values cannot show; zeros pass on `zeros_pass`.
    `tried`: the workloads on which a variant's output was compared."""
    for kind, spot in BLIND_SPOTS.items():
        names = weaknesses.get(kind, ())
        # Only outputs that are indices tell equal values apart.
        if names and (kind != "untied" or weaknesses.get("whole_outputs")):
            listed, several = ", ".join(names), len(names) > 1
            inputs = f"inputs {listed} are" if several else f"input {listed} is"
            fact, _, mistake = spot.partition(": ")
            fact = fact.format(names=listed, inputs=inputs)
            mistake = mistake.format(them="them" if several else "it")
            yield f"{fact}: a kernel that {mistake} would pass"
    any_dtype = next(iter(target.dtypes.values()))
    all_workloads, constants = expand_sets(target, target.workloads, any_dtype), list[str]()
    for name in target.signature.attributes:
        values = {str(workload.attributes[name]) for workload in all_workloads}
        if len(values) == 1 and name not in weaknesses.get("ignored", ()):
            constants.append(f"{name}={values.pop()}")
    if constants:
        pronoun = "it" if len(constants) == 1 else "them"
        fact = f"every workload has {', '.join(constants)}"
        yield f"{fact}: a kernel that ignores {pronoun} would pass"
    if zeros_pass:
        more = f" and {len(zeros_pass) - 3} more" * (len(zeros_pass) > 3)
        names_text = ", ".join(zeros_pass[:3]) + more
        fact = f"the right output is zero within what is allowed on {names_text}"
        yield f"{fact}: a kernel that writes zeros would pass"
    counts, elements = dict[str, set[int]](), set[int]()
    for workload in tried:
        for name, value in {**workload.sizes, **workload.attributes}.items():
            if type(value) is int:
                counts.setdefault(name, set()).add(value)
        for shape in (*target.signature.inputs.values(), *target.signature.outputs.values()):
            sizes = [workload.sizes.get(dimension) for dimension in shape.split()]
            known_sizes = [size for size in sizes if size is not None]
            if len(known_sizes) == len(sizes):
                elements.add(math.prod(known_sizes))
    dimensions = " ".join((*target.signature.inputs.values(), *target.signature.outputs.values()))
    if ANY in dimensions.split():
        elements.clear()  # The largest tensor is not known.
    counts = {name: values for name, values in counts.items() if max(values) >= 0}
    without_zero = ", ".join(name for name, values in counts.items() if 0 not in values)
    untried = [f"0 of {without_zero}"] if without_zero else []
    largest = ", ".join(f"{name} > {max(values):,}" for name, values in counts.items())
    untried += [largest] if largest else []
    if (most_elements := max(elements, default=0)) > 1:
        untried.append(f"more than {most_elements:,} elements in a tensor")
    if untried:
        fact = f"no workload tried has {', or '.join(untried)}"
        yield f"{fact}: a kernel that is wrong there would pass"


class NoKnownGood(Exception):
    """There is no known-good build to measure; the message says why."""


class SameAsKnownGood(NoKnownGood):
    """The build of today is the known-good build, or has the same machine code."""


GNU_BUILD_ID = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0.{20}", re.DOTALL)
"""The note in which a linker of ELF files stores a hash of the whole file."""


def machine_code(library: Build) -> bytes:
    """The bytes of a library without its build ids: equal if sources differ in comments only."""
    content = Path(library.library).read_bytes().replace(library.build_id.encode(), b"")
    return GNU_BUILD_ID.sub(b"", content)


def known_good_build(context: Context, name: str, current: Build) -> Waiting[Build]:
    """A variant's known-good build, from the cache or built again from its commit. NoKnownGood if
    there is none, or if it cannot be built again; SameAsKnownGood if it is `current`."""
    known_good, bench = context.past.known_good.get(name), context.bench
    if known_good is None:
        raise NoKnownGood("no earlier session on this device passed")
    session, limit_s = known_good.session, context.kill_after_s
    if known_good.build_id == current.build_id:
        raise SameAsKnownGood(f"it is the known good itself, built from the sources of {session}")
    if cached := build.find_build_by_id(name, known_good.build_id, bench.cache):
        return cached
    if known_good.commit is None:
        reason = "has left the cache, and its sources were not committed"
        raise NoKnownGood(f"the build of {session} {reason}")
    commit, locations = known_good.commit[:12], {"cache": bench.cache, "include": bench.include}
    try:
        with locked_temporary_folder(bench.cache, ".known-good-") as folder:
            checkout = export_commit(context.task.folder, known_good.commit, folder)
            variant = read_file(checkout / "target.yaml", Target).value.variants.get(name)
            if not isinstance(variant, CAbiVariant):
                raise NoKnownGood(f"{commit} has no compiled variant {name}")
            rebuilt = yield from build.build(name, variant, checkout, **locations, limit_s=limit_s)
    except (BuildFailed, LoopError) as error:
        raise NoKnownGood(f"{commit} of {session} no longer builds: {error}") from error
    if rebuilt.build_id != known_good.build_id:
        reason = "the compiler changed, or files were not committed"
        raise NoKnownGood(f"{commit} builds to something else than {session} measured: {reason}")
    return rebuilt


VERBS = {"refused": "refuses a call", "crashed": "crashes", "hung": "hangs"}  # Else: is incorrect.


def conclude_verification(
    context: Context,
    shares: Sequence[ShareOutput],
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    failures: Sequence[BuildFailed],
    *,
    emulated: bool = False,
) -> VerifyOutput:
    """The output of a verification, from its shares. The baseline, as the control, has to pass the
    same checks, or no verdict counts. `sides`: the variants that have a build; `workloads`: to try;
    `failures`: of builds; `emulated`: for the session's emulated variants, not the others."""
    all_checks, control = merge_shares(shares, workloads)
    selected = context.task.emulated if emulated else context.task.variants
    is_trusted = bool(control.checks) and not control.first_failure
    right_names = [checks.variant for checks in all_checks if checks.is_right and is_trusted]
    every_check = [check for checks in (*all_checks, control) for check in checks.checks]
    unjudged_checks = [check for check in every_check if check.status == "not judged"]
    messages = {check.workload.name: check.message for check in unjudged_checks}
    unjudged = [f"not judged: {message}" for message in messages.values()]
    names, emulator = [side.name for side in sides], " under the emulator" if emulated else ""
    left_out = [f"{name}{emulator}: it has no build" for name in selected if name not in names]
    skipped = [workload for share in shares for workload in share.left_out]
    unverified = describe_unverified_sets(context, names, skipped, "cuda" if emulated else None)
    under = "under the emulator, " if emulated else ""
    left_out += [f"{under}{text}" for text in unverified]
    no_room = tuple(dict.fromkeys(text for share in shares for text in share.no_room))
    left_out += (*no_room, *dict.fromkeys(text for share in shares for text in share.notes))
    blind_spots = functools.reduce(common_weaknesses, [share.blind_spots for share in shares])
    zeros_pass = [name for share in shares for name in share.zeros_pass]
    untested = ("not judged", "unsupported")
    compared = [check for checks in all_checks for check in checks.checks]
    compared_on = [check.workload for check in compared if check.status not in untested]
    left_out += describe_blind_spots(blind_spots, context.bench.target, zeros_pass, compared_on)
    tried = distinct_workloads(workloads, beyond=skipped)
    untaken = {side.name: describe_untaken_workloads(side, tried) for side in sides}
    left_out += [f"{variant} on {text}" for variant, texts in untaken.items() for text in texts]
    declined, tallies = list[str](), list[str]()
    for checks in all_checks:
        unsupported = [check.inputs for check in checks.checks if check.status == "unsupported"]
        if layouts := dict.fromkeys(layout for layout in unsupported if layout != "contiguous"):
            declined.append(f"{checks.variant} on {', '.join(layouts)} inputs: not supported")
        is_all_right = checks.count("right") == len(checks.checks)
        tally = f"right in {len(checks.checks)} checks" if is_all_right else checks.tally
        tallies.append(f"{checks.variant} {tally}")
    unchecked = [checks.variant for checks in all_checks if not checks.count("right")]
    message, hint = _describe_failure(context, all_checks, control, failures)
    if not message and unchecked:
        reasons = [*untaken.get(unchecked[0], ()), *unjudged, *left_out, "there is no workload"]
        message = f"nothing was checked of {unchecked[0]}: {reasons[0]}"
        types_hint = f"`{context.command('kernels', 'list')}` shows the types of each"
        hint = f"{types_hint}: say dtype=... in --workloads, or name another set"
    message = message or ", ".join(tallies) or "no variant runs on this device"
    verdict_by_place: dict[tuple[str, str], NoSpeedVerdict] = {}
    """Variant and workload to the verdict of the first failed check there; tampering goes first."""
    for checks in all_checks:
        failed_checks = [check for check in checks.checks if not check.passed]
        for check in sorted(failed_checks, key=lambda check: check.status != "tampered"):
            place = checks.variant, check.workload.name
            verdict = check.make_verdict(checks.variant, "baseline", check.message)
            verdict_by_place.setdefault(place, verdict)
    return VerifyOutput(
        ok=len(right_names) == len(selected) and is_trusted,
        message=Fitting((), no_room).extend_message(message),
        hint=hint,
        verdicts=tuple(verdict_by_place.values()) if is_trusted else (),
        not_exercised=(*unjudged, *left_out, *declined),
        variants=all_checks,
        control=control,
        seed=context.task.seed,
        right=tuple(right_names),
        wrong=tuple(checks.variant for checks in all_checks if checks.first_failure),
    )


def _describe_failure(
    context: Context,
    sides: Sequence[VariantChecks],
    control: VariantChecks,
    failures: Sequence[BuildFailed],
) -> tuple[str, str | None]:
    """A message on what failed (or empty), and a hint on what to do next, or None."""
    failed = [checks for checks in sides if checks.first_failure]
    failure = failed[0].first_failure if failed else None
    failed_names = [checks.variant for checks in failed]
    if control.first_failure:
        doubt = "baseline, reference or tolerance is not to be trusted there"
        hint = "look at `reference`, `plain`, `baseline` and `tolerance` of target.yaml first"
        if control.first_failure.status in VERBS:
            doubt = "the baseline computes nothing, so that nothing can be held against it"
            hint = "`loop doctor` looks at torch and the device; see `baseline` of target.yaml"
        message = f"the control failed: {doubt}: {control.first_failure.message}"
        message += f"; {failed_names[0]} as well: {failure.message}" if failure else ""
        return message, hint
    if failure:
        verb = VERBS.get(failure.status, "is incorrect")
        message = f"{failed_names[0]} {verb}: {failure.message}"
        message += f" ({failed[0].tally})" if len(failed[0].checks) > 1 else ""
        if len(failed_names) > 1:
            be = "is" if len(failed_names) == 2 else "are"
            message += f"; so {be} {', '.join(failed_names[1:])}"
        command = context.command("kernels", "verify", failed_names[0])
        return message, f"mend {failed_names[0]}, then `{command}`"
    return (f"no build: {failures[0].message}", failures[0].hint) if failures else ("", None)


def merge_shares(
    shares: Sequence[ShareOutput], workloads: Sequence[Workload]
) -> tuple[tuple[VariantChecks, ...], VariantChecks]:
    """Merge the checks of several jobs (shares of the workloads): those of each variant, and those
    of the control; in the order of a single job. WorkFailed where no share could judge anything."""
    merged: dict[str, VariantChecks] = {}
    for parts in zip(*(share.sides for share in shares), strict=True):
        side = merge_checks(parts, workloads)
        if side.variant in merged:  # The same variant with another number of threads.
            earlier = merged[side.variant]
            side = earlier.model_copy(update={"checks": (*earlier.checks, *side.checks)})
        merged[side.variant] = side
    checks = [check for side in merged.values() for check in side.checks]
    if len(shares) > 1 and checks and all(check.status == "not judged" for check in checks):
        raise WorkFailed(checks[0].message, hint=UNJUDGED_HINT)
    return tuple(merged.values()), merge_checks([share.control for share in shares], workloads)


def describe_untaken_workloads(side: Side, workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Up to two sentences on workloads that a side does not take: by type, and by its `takes`."""
    texts = []
    for is_by_type in (True, False):
        reasons: dict[str, str] = {}
        for workload in workloads:
            has_other_type = workload.dtype not in side.dtypes
            reason = workload.dtype if has_other_type else explain_unsupported(side, workload)
            if reason and has_other_type == is_by_type:
                reasons[workload.name] = reason
        subject = f"{len(reasons)} workloads" if len(reasons) > 1 else "".join(reasons)
        listed = ", ".join(dict.fromkeys(reasons.values()))
        if reasons and is_by_type:
            texts.append(f"{subject} of type {listed}: it takes {', '.join(side.dtypes)}")
        elif reasons:
            texts.append(f"{subject}: not supported, {listed} (`takes: {side.takes}`)")
    return tuple(texts)


MOST_FLOPS = 1e9  # Most operations of an emulated workload: a scalar kernel takes seconds.


def emulate(context: Context, arguments: ResultLifetime) -> RunningAction[VerifyOutput]:
    """Verify the emulated variants in GPU types, against float64: on the plan's workloads, then for
    a few seconds on other sets. Passes if none is selected. Names workloads that were not run."""
    bench, selected = context.bench, context.task.emulated
    if not selected:
        if not bench.target.emulated_variants:
            return Result(VerifyOutput(ok=True, message="no variant can be emulated"), idle=True)
        reason = "they run on the GPU here" if bench.device == "cuda" else "not selected"
        text = f"{', '.join(bench.target.emulated_variants)} under the emulator: {reason}"
        return Result(VerifyOutput(ok=True, message=text, not_exercised=(text,)), idle=True)
    sides, failures = yield from build_sides(context, selected)
    build_ids = [side.build_id or "" for side in sides.values()]
    inputs_digest = steps_context.dependency_hash(context, "kernel.emulate", *build_ids)
    stored_output = steps_context.reuse_result(context, VerifyOutput, inputs_digest, arguments)
    if stored_output is not None and not failures:
        return Result(stored_output)
    required, optional = choose_workloads(context, 1, "cuda")
    checked = [w for w in (*required, *optional) if not is_too_large_to_emulate(bench.target, w)]
    allowance = TimeAllowance(VerifyTerms().others_s, [w for w in optional if w in checked])
    jobs = [Job(side, checked) for side in sides.values()]
    control_workloads = [w for w in checked if w in required]
    control_job = Job(bench.make_side(BASELINE), control_workloads, layouts=False)
    share = yield from _make_checks(bench, checked, [*jobs, control_job], allowance)
    emulated_checks = tuple(checks.model_copy(update={"emulated": True}) for checks in share.sides)
    left_out = (*share.left_out, *(w for w in optional if w not in checked))
    too_large = [w for w in required if w not in checked]
    to_try = [w for w in (*required, *optional) if w not in too_large]
    notes = [f"{w.name} under the emulator: too much work for it" for w in too_large]
    update = {"sides": emulated_checks, "left_out": left_out, "notes": (*notes, *share.notes)}
    shares, tried = [share.model_copy(update=update)], [*sides.values()]
    output = conclude_verification(context, shares, tried, to_try, failures, emulated=True)
    return Result(output.model_copy(update={"rests_on": inputs_digest}))


def is_too_large_to_emulate(target: Target, workload: Workload) -> bool:
    """Whether a workload has too many operations for the emulator, by `flops` of target.yaml."""
    return (evaluate_work(target.flops, workload) or 0.0) > MOST_FLOPS


def find_known_good(root: Path, head: SessionHead) -> dict[str, KnownGood]:
    """Variant to its known-good build: the last one with which a session passed on such a device,
    without builds that any session found wrong. Says so once if a record cannot be read. Callers
    verify the build again before timing: that session may have used other workloads."""
    builds: dict[str, KnownGood] = {}
    wrong_build_keys = sessions.wrong_builds(sessions.rows(root, target=head.target))
    for folder, _, steps in earlier_sessions(root, head, hardware_key):
        try:
            record = folder.record()
        except LoopError as error:
            remark_once(f"left out: {error.message}")
            continue
        if record is None or record.status != "passed":
            continue
        revision = record.head.revision
        commit = None if revision.dirty else revision.commit
        place: dict[str, Any] = {"session": folder.id, "commit": commit, "branch": revision.branch}
        for checks in chain(*(output.variants for output in outputs_of(steps, VerifyOutput))):
            is_wrong = (checks.variant, checks.build_id, "") in wrong_build_keys
            if checks.is_right and checks.build_id and not is_wrong:
                builds[checks.variant] = KnownGood(build_id=checks.build_id, **place)
    return builds


def hardware_key(head: SessionHead) -> tuple[object, ...]:
    """Target, kind of device, GPU or processor: a known-good build holds for an equal key."""
    processor = head.machine.gpus[:1] if head.device == "cuda" else (head.machine.processor,)
    return head.target, head.device, processor
