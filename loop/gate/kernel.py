"""Actions that build, load and verify the selected variants, and find a known-good build."""

import functools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from loop.base.documents import hash_files
from loop.base.errors import LoopError, WorkFailed
from loop.base.locks import locked_temporary_folder
from loop.base.places import Project
from loop.base.processes import Tick, run_side_by_side
from loop.builds import build
from loop.builds.build import Buildable, BuildFailed, buildable_variants
from loop.formats.target import ANSWERS
from loop.gate.environment import must_fit
from loop.gate.model import BuildOutput, ChangesOutput, LoadOutput, ShareOutput, SourcesOutput
from loop.gate.verification import hung_out, merge_shares, untaken_workloads, verification_output
from loop.gate.verify import Job, TimeAllowance, of_one_shape, values_key
from loop.gate.verify import verify as verify_sides
from loop.library import targets
from loop.library.definitions import read_file
from loop.library.trust import read_origin
from loop.machine.machine import cores
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.jobs import JobRun
from loop.model.measurement import BASELINE, Build, InputWeaknesses
from loop.model.output import VerifyOutput
from loop.model.target import CAbiVariant, Target, Workload
from loop.model.workloads import count_operations, expand_sets
from loop.report import format as say
from loop.repository import changes as files_changed
from loop.repository import export
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.steps.spread import Part, spread_action
from loop.workers.bench import Bench, Fitting, Side, fit_workloads
from loop.workers.program import START_LIMIT_S, Refusal, WorkerLost

MOST_ASKED, SLOW_S = 4, 0.2
"""Most workloads on which `loop` tests what the reference reads; seconds that each may take."""
UNREAD = ("unread", "ignored", "unmoved", "initial")
AS_LONG_BYTES, LAID_OUT = 1 << 21, 8
"""Bytes of a call whose time equals a check's fixed cost; the cost factor of trying all layouts."""
SHOWN = 20
"""Most changed files in an output."""
Built = tuple[tuple[Build, ...], list[BuildFailed]]
"""Builds of the variants that compile, and the failures of the others."""


class SourceLimits(Model):
    """Limits on a variant's sources."""

    units: Annotated[int, Field(ge=1)] = 1
    """Most translation units of a variant."""


def sources(context: Context, arguments: SourceLimits) -> RunningAction[SourcesOutput]:
    """Check sources before compiling: number of translation units, and no framework headers."""
    units, headers, problems, ids = 0, set[str](), list[str](), list[str]()
    for name, variant in context.bench.compiled_variants(context.task.variants).items():
        try:
            scanned = yield from build.scan(variant, context.task.folder, context.bench.include)
        except BuildFailed as failed:
            return Result(SourcesOutput(ok=False, message=f"{name}: {failed.message}", hint=failed.hint))
        ids.append(f"{name}={scanned.identity}")
        units = max(units, scanned.units)
        headers |= set(scanned.framework_headers)
        if scanned.units > arguments.units:
            problems.append(f"{name} has {scanned.units} translation units: include them from one file")
    if headers:
        problems.append(f"framework headers are included, {sorted(headers)[0]} first: use native types")
    return Result(
        SourcesOutput(
            ok=not problems,
            message="; ".join(problems) or "one translation unit a variant, no framework headers",
            identity=" ".join(ids),
            units=units,
            framework_headers=tuple(sorted(headers)),
        )
    )


def build_variants(context: Context, arguments: NoArguments) -> RunningAction[BuildOutput]:
    """Compile the variants that are not in the cache. A failure does not stop other builds."""
    bench = context.bench
    wanted = {**to_build(context, context.task.variants), **bench.emulated_variants(context.task.emulated)}
    built, failures = yield from compile_all(context, wanted)
    parts = []
    for each in built:
        if each.compiled:
            parts.append(f"{each.variant} {'cached' if each.cached else f'compiled in {each.seconds:.1f} s'}")
    parts += [each.note for each in built if each.note]
    message = ", ".join(parts) if built else "nothing to compile"
    return Result(
        BuildOutput(
            ok=not failures,
            message=failures[0].message if failures else message,
            hint=failures[0].hint if failures else None,
            identity=" ".join(f"{each.variant}={each.build_id}" for each in built),
            builds=built,
            units=max((each.units for each in built), default=0),
            framework_headers=tuple(sorted({header for each in built for header in each.framework_headers})),
            seconds=sum(each.seconds for each in built if not each.cached),
        )
    )


def builds(context: Context) -> Generator[Tick, None, Built]:
    """Build all selected variants; returns the builds and the failures."""
    return (yield from compile_all(context, to_build(context, context.task.variants)))


def to_build(context: Context, names: Iterable[str]) -> Mapping[str, Buildable]:
    """The variants that need a build. Python variants need one if the session may change them."""
    return (
        buildable_variants(context.bench, names)
        if context.task.has_change_steps
        else context.bench.compiled_variants(names)
    )


def compile_all(
    context: Context, variants: Mapping[str, Buildable], *, to_run: bool = True
) -> Generator[Tick, None, Built]:
    """Build variants in parallel, one compiler per core, the largest sources first.

    `to_run`: whether builds will run here. Then one that the driver could not run fails at once.
    """
    bench, folder = context.bench, context.task.folder

    def attempt(name: str, variant: Buildable) -> Generator[Tick, None, Build | BuildFailed]:
        where = {"cache": bench.cache, "include": bench.include}
        try:
            if to_run and isinstance(variant, CAbiVariant):
                must_fit(variant)
            return (yield from build.build(name, variant, folder, **where, limit_s=context.kill_after_s))
        except BuildFailed as failed:
            return failed.of(name)

    order = sorted(variants, key=lambda name: -build.bytes_read(variants[name], folder))
    results = yield from run_side_by_side((attempt(name, variants[name]) for name in order), cores())
    by_name = dict(zip(order, results, strict=True))
    attempts = [by_name[name] for name in variants]
    built = tuple(each for each in attempts if isinstance(each, Build))
    return built, [each for each in attempts if isinstance(each, BuildFailed)]


def usable_variants(context: Context, built: Iterable[Build]) -> tuple[str, ...]:
    """Names of the selected variants that need no build or have one."""
    names = {build.variant for build in built}
    wanted = to_build(context, context.task.variants)
    return tuple(name for name in context.task.variants if name in names or name not in wanted)


def usable_sides(context: Context, built: Iterable[Build]) -> list[Side]:
    """A side (variant with its build) for each selected variant that needs no build or has one."""
    by_name = {build.variant: build for build in built}
    return [
        context.bench.make_side(name, by_name.get(name)) for name in usable_variants(context, by_name.values())
    ]


def load(context: Context, arguments: NoArguments) -> RunningAction[LoadOutput]:
    """Load every built library in its own process, to check its symbols and build id."""
    bench = context.bench
    built, failures = yield from compile_all(context, bench.compiled_variants(context.task.variants))
    if failures:
        return Result(LoadOutput(ok=False, message=failures[0].message, hint=failures[0].hint))
    for library in built:
        with bench.start_worker(bench.make_side(library.variant, library)) as worker:
            try:
                yield from worker.receive(START_LIMIT_S, f"loading {library.variant}")
            except (Refusal, WorkerLost) as error:
                hint = "build again; define or instantiate a missing symbol in the same translation unit"
                return Result(LoadOutput(ok=False, message=f"{library.variant} {error}", hint=hint))
    loaded = tuple(library.variant for library in built)
    message = f"{', '.join(loaded)}: loads, build id as on disk" if loaded else "nothing to load"
    return Result(LoadOutput(ok=True, message=message, loaded=loaded))


def workloads(
    context: Context, sets: Iterable[str], seed: int | None = None, device: Device | None = None
) -> tuple[Workload, ...]:
    """The workloads of these sets that verification could judge in this session."""
    left = unjudged_names(context)
    return tuple(workload for workload in every_workload(context, sets, seed, device) if workload.name not in left)


def every_workload(
    context: Context, sets: Iterable[str], seed: int | None = None, device: Device | None = None
) -> tuple[Workload, ...]:
    """The workloads of these sets, in the element type of `device` (None: the session's)."""
    target = context.bench.target
    dtype = target.dtypes[device or context.bench.device]
    return expand_sets(target, sets, dtype, context.task.seed if seed is None else seed)


def unjudged_names(context: Context) -> set[str]:
    """Names of the workloads that the last verification of this session could not judge."""
    verified = context.latest("kernel.verify")
    checks = VerifyOutput.model_validate(verified) if verified else VerifyOutput(ok=True, message="")
    sides = (*checks.variants, *([checks.control] if checks.control else []))
    return {check.workload.name for side in sides for check in side.checks if check.status == "not judged"}


def extra_sets(context: Context) -> list[str]:
    """Workload sets of the plan that are checked and not timed."""
    return [name for name in context.task.plan.checks if name in context.bench.target.workloads]


def other_sets(context: Context) -> list[str]:
    """Workload sets of the target that the plan neither times nor checks."""
    plan = context.task.plan
    return [name for name in context.bench.target.workloads if name not in (*plan.workloads, *plan.checks)]


def distinct_workloads(checked: Iterable[Workload]) -> tuple[Workload, ...]:
    """The workloads without duplicates (same name and seed)."""
    return tuple({values_key(workload): workload for workload in checked}.values())


def workloads_beyond(known: Sequence[Workload], more: Iterable[Workload]) -> tuple[Workload, ...]:
    """The workloads of `more` that `known` does not contain, without duplicates."""
    keys = {values_key(workload) for workload in known}
    return tuple(workload for workload in distinct_workloads(more) if values_key(workload) not in keys)


def unverified_sets(
    context: Context, names: Sequence[str], left_out: Sequence[Workload], device: Device | None = None
) -> list[str]:
    """At most one sentence: the sets not fully verified, and the command that verifies them."""
    missing, texts = set(map(values_key, left_out)), []
    for name in context.bench.target.workloads:
        every = set(map(values_key, workloads(context, [name], device=device)))
        part = len(every & missing)
        if part:
            texts.append(name if part == len(every) else f"{name} ({part} of {len(every)} workloads)")
    command = context.command("kernels", "verify", *names)
    return [f"{say.count(len(texts), 'set')} of workloads, {', '.join(texts)}: `{command}`"] if texts else []


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

    only: tuple[int, ...] = ()
    """Indices of this job's workloads among the distinct workload names; empty: all."""
    first: bool = True
    """Whether this job tests what the reference reads, and reports workloads that lack memory."""


@dataclass(frozen=True)
class ChosenWorkloads:
    """The workloads that a step verifies."""

    timed: Sequence[Workload]
    """The workloads that the plan times, with one seed each."""
    others: Sequence[Workload]
    """Workloads that the plan does not name, verified while time is left."""
    every: Sequence[Workload]
    """All workloads: the timed ones with every seed, checked sets, then `others`."""


def verify(context: Context, arguments: VerifyTerms) -> RunningAction[VerifyOutput]:
    """Verify the selected variants, and the baseline as a control, on all workloads against float64."""
    built, failures = yield from builds(context)
    bench, jobs = context.bench, tuple[JobRun, ...]()
    sides, chosen = usable_sides(context, built), _chosen(context, arguments.seeds)
    names = [side.name for side in sides]
    if context.task.campaign.executor and names:
        parts = _parts(context, sides, chosen.every, arguments)
        answers, jobs = yield from spread_action(context, "kernel.verify_share", parts)
        shares = [ShareOutput.model_validate(answer, strict=False) for answer in answers]
    else:
        shares = [(yield from _share(context, sides, chosen, ShareTerms.model_validate(dict(arguments))))]
    every, control = merge_shares(shares, chosen.every)
    left_out = tuple(workload for share in shares for workload in share.left_out)
    missing = [f"{name}: it has no build" for name in context.task.variants if name not in names]
    missing += unverified_sets(context, names, left_out)
    if bench.device == "cpu" and arguments.threads is not None:
        missing.append(f"other numbers of threads than {arguments.threads}: leave out `--threads`")
    elif bench.device == "cpu" and cores() == 1:
        missing.append("several threads: this machine has one core")
    no_room = tuple(text for share in shares for text in share.no_room)
    notes = dict.fromkeys(text for share in shares for text in share.notes)
    looked = functools.reduce(InputWeaknesses.combined_with, (share.looked for share in shares))
    spots = blind_spots(looked, bench.target, [name for share in shares for name in share.zeros])
    output = verification_output(
        every,
        control,
        context.task.variants,
        seed=context.task.seed,
        command=context.command,
        failures=failures,
        missing=(*missing, *no_room, *notes, *spots),
        untaken={side.name: untaken_workloads(side, workloads_beyond(left_out, chosen.every)) for side in sides},
    )
    update: dict[str, object] = {"message": Fitting((), no_room).extend_message(output.message), "jobs": jobs}
    if edited := ", ".join(dict.fromkeys(path for share in shares for path in share.edited)):
        update |= {"ok": False, "right": (), "verdicts": ()}
        update["wrong"] = tuple(names) if len(names) == 1 else output.wrong
        update["message"] = f"edited while answers ran: {edited}: such a file judges nothing"
        update["hint"] = "put it back, then verify the answers one by one: that tells which of them edits it"
    return Result(output.model_copy(update=update))


def verify_share(context: Context, arguments: ShareTerms) -> RunningAction[ShareOutput]:
    """Make the checks of `kernel.verify` on a share of its workloads, as one job of an executor."""
    built, failures = yield from builds(context)
    if failures:
        raise WorkFailed(f"no build: {failures[0].message}", hint=failures[0].hint)
    sides, chosen = usable_sides(context, built), _chosen(context, arguments.seeds)
    return Result((yield from _share(context, sides, chosen, arguments)))


def _chosen(context: Context, seeds: int) -> ChosenWorkloads:
    """The workloads to verify; `seeds`: sets of values for each timed workload."""
    sets, seed = context.task.plan.workloads, context.task.seed
    timed = every_workload(context, sets)
    others = [every_workload(context, sets, seed + more) for more in range(1, seeds)]
    # Seeds of one shape follow each other, because they share buffers.
    seeded = [workload for same in zip(timed, *others, strict=True) for workload in same]
    required = distinct_workloads([*seeded, *every_workload(context, extra_sets(context))])
    optional = workloads_beyond(required, every_workload(context, other_sets(context)))
    small_first = sorted(optional, key=functools.partial(count_operations, context.bench.target))
    return ChosenWorkloads(timed, optional, (*required, *small_first))


def _share(
    context: Context, variants: Sequence[Side], chosen: ChosenWorkloads, arguments: ShareTerms
) -> Generator[Tick, None, ShareOutput]:
    """Verify these variants and the control on the share's workloads."""
    bench, before = context.bench, _ground_hashes(context)
    sides = [replace(side, threads=arguments.threads) for side in variants]
    room = fit_workloads(bench, chosen.every, [*sides, bench.make_side(BASELINE)], one_at_a_time=True)
    shapes = [same[0].name for same in of_one_shape(chosen.every)]
    only = frozenset(shapes[place] for place in arguments.only) if arguments.only else None
    allowance = TimeAllowance(arguments.others_s, chosen.others)
    jobs = [Job(side, room.workloads, enough=arguments.enough, only=only) for side in sides]
    timed = [workload for workload in chosen.timed if workload in room.workloads]
    threads = 3 if cores() > 3 else cores() - 1  # Odd, because an odd number divides few sizes.
    if bench.device == "cpu" and threads and arguments.threads is None:
        again = [replace(side, threads=threads) for side in sides]
        jobs += [Job(side, timed, layouts=False, enough=True, only=only) for side in again]
    library = Job(bench.make_side(BASELINE), timed, layouts=False, control=True, only=only)
    *checked, control = yield from verify_sides(bench, [*jobs, library], allowance)
    looked = yield from look_at_values(bench, room.workloads, ask=arguments.first)
    now = _ground_hashes(context)
    return ShareOutput(
        ok=True,
        message=f"{len(checked)} sides verified on {say.count(len(only or shapes), 'workload')}",
        sides=tuple(checked),
        control=control,
        left_out=tuple(allowance.left_out),
        no_room=room.exclusions if arguments.first else (),
        notes=(*(text for checks in checked for text in hung_out(checks)), *bench.notes),
        looked=looked,
        zeros=tuple(bench.workloads_passing_zeros),
        edited=tuple(str(path.resolve()) for path, content in before.items() if now.get(path) != content),
    )


def _ground_hashes(context: Context) -> dict[Path, str]:
    """Path to hash of a foreign task's own files, because an answer may try to edit them."""
    folder = context.task.folder
    if read_origin(folder) is None:
        return {}
    files = targets.source_files(Project(folder, folder / "sessions", bundled=False))
    return {path: hash_files([path], folder) for path in files if ANSWERS not in path.relative_to(folder).parts}


def _parts(
    context: Context, sides: Sequence[Side], every: Sequence[Workload], arguments: VerifyTerms
) -> list[Part]:
    """Split into jobs by workloads, not by variants, so that each reference is computed once."""
    bench, plan, shapes = context.bench, context.task.plan, of_one_shape(every)
    layouts = {workload.name for side in sides for workload in Job(side, every).laid_out.values()}
    costs = []
    for same in shapes:
        call = bench.make_call(same[0], "judge")
        size = call.output.nbytes + sum(tensor.pool_nbytes for tensor in call.inputs)
        costs.append(len(same) * (1 + size / AS_LONG_BYTES) * (LAID_OUT if same[0].name in layouts else 1))
    shares = balance_shares(costs, min(context.task.campaign.width, len(shapes)))
    names, parts = [side.name for side in sides], []
    for number, places in enumerate(shares):
        share = {"only": tuple(places) if len(shares) > 1 else (), "first": number == 0}
        terms = ShareTerms.model_validate({**dict(arguments), **share})
        title = f"verify {', '.join(names)}" + f", share {number + 1} of {len(shares)}" * (len(shares) > 1)
        parts.append(Part(title, terms, names, plan.workloads, plan.checks))
    return parts


def balance_shares(costs: Sequence[float], count: int) -> list[list[int]]:
    """Balance work over `count` shares, largest cost first; indices of `costs` for each share."""
    shares, sums = [list[int]() for _ in range(count)], [0.0] * count
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        least = sums.index(min(sums))
        shares[least].append(place)
        sums[least] += costs[place]
    return [sorted(share) for share in shares]


def look_at_values(
    bench: Bench, workloads: Sequence[Workload], *, ask: bool = True
) -> Generator[Tick, None, InputWeaknesses]:
    """Blind spots of the values drawn so far; with `ask`, also what the reference does not read.

    It is asked only on workloads with no more work than one that the judge finished quickly.
    """
    work = functools.partial(count_operations, bench.target)
    quick_work = max((work(w) for w in workloads if bench.reference_s.get(w.name, SLOW_S) < SLOW_S), default=0.0)
    quick = [workload for workload in workloads if ask and work(workload) <= quick_work]
    # Choose the smallest workload for each kind of values and set of attributes, if possible without size 1.
    quick.sort(key=lambda w: (min(w.sizes.values(), default=2) < 2, sum(w.sizes.values())))
    unlike: dict[tuple[str, ...], Workload] = {}
    for workload in quick:
        if 0 not in workload.sizes.values():
            unlike.setdefault((workload.values, *map(str, workload.attributes.values())), workload)
    asked = [*unlike.values()][: MOST_ASKED - 1]
    largest = max(quick, key=lambda workload: sum(workload.sizes.values()), default=None)
    if largest and largest not in asked:  # An input may have an effect only at large sizes.
        asked.append(largest)
    looked: list[InputWeaknesses] = []
    for small in asked or (None,):
        looked.append((yield from bench.find_blind_spots(small)))
        if not any(getattr(looked[-1], name) for name in UNREAD):
            break
    unread = dict[str, tuple[str, ...]]()
    for name in UNREAD:  # An input counts as unread only if it was unread on every workload tried.
        first, *others = (getattr(look, name) for look in looked)
        unread[name] = tuple(name for name in first if all(name in other for other in others))
    return looked[-1].model_copy(update=unread)


def blind_spots(looked: InputWeaknesses, target: Target, zeros: Sequence[str]) -> Iterator[str]:
    """Sentences on mistakes that a target's values cannot show; `zeros`: workloads where 0 passes."""
    never = "a kernel that never reads"
    for names, what, who in (
        (looked.fixed_inputs, "{} the same under every seed", f"{never} {{}} would pass"),
        (
            looked.single_valued_inputs,
            "{} one value everywhere",
            "a kernel that reads one element of {} would pass",
        ),
        (looked.nonnegative_inputs, "{} never negative", "a kernel that is wrong below zero would pass"),
        (looked.unread, "{} not read by the reference on the workloads tried", f"{never} {{}} would pass"),
    ):
        if names:
            plural = len(names) > 1
            verb, them = ("are", "them") if plural else ("is", "it")
            listed = f"input{'s' * plural} {', '.join(names)} {verb}"
            yield f"{what.format(listed)}: {who.format(them)}"
    if looked.unmoved:
        yield f"output {', '.join(looked.unmoved)} is the same whatever the inputs are: a constant would pass"
    if looked.initial:
        left = f"weights {', '.join(looked.initial)} are all 1 or all 0, as the constructor leaves them"
        yield f"{left}: a kernel that ignores them would pass"
    if looked.ignored:
        yield f"attribute {', '.join(looked.ignored)} changes no output: a kernel that ignores it would pass"
    every, only = expand_sets(target, target.workloads, next(iter(target.dtypes.values()))), list[str]()
    for name in target.signature.attributes:
        values = {str(workload.attributes[name]) for workload in every}
        if len(values) == 1 and name not in looked.ignored:
            only.append(f"{name}={values.pop()}")
    if only:
        which = "it" if len(only) == 1 else "them"
        yield f"every workload has {', '.join(only)}: a kernel that ignores {which} would pass"
    if zeros:
        listed = ", ".join(zeros[:3]) + (f" and {len(zeros) - 3} more" if len(zeros) > 3 else "")
        yield f"the right output is zero within what is allowed on {listed}: a kernel that writes zeros would pass"
    if looked.finite:
        yield "no input is NaN or infinite: a kernel that is wrong on these would pass"


def changes(context: Context, arguments: NoArguments) -> RunningAction[ChangesOutput]:
    """Report variants whose build differs from the known-good build, and the changed files."""
    built, failures = yield from builds(context)
    if failures:
        return Result(ChangesOutput(ok=False, message=failures[0].message, hint=failures[0].hint))
    known = context.past.known_good
    ids = {build.variant: build.build_id for build in built}
    unknown = [name for name in ids if name not in known]
    changed = tuple(name for name in ids if name in known and known[name].build_id != ids[name])
    commit = next((known[name].commit for name in changed if known[name].commit), None)
    files = (files_changed(context.task.folder, commit) if commit else None) or {}
    message = "nothing to compare with: no known good yet" if unknown else "nothing changed since the known good"
    if changed:
        where = f": {sum(files.values())} lines in {len(files)} files" if files else ""
        message = f"{', '.join(changed)} changed since the known good{where}"
    return Result(
        ChangesOutput(
            ok=True,
            message=message,
            identity=" ".join(f"{name}={build_id}" for name, build_id in ids.items()),
            changed=changed,
            count=len(changed),
            files=tuple(sorted(files))[:SHOWN],
            not_exercised=tuple(f"what changed in {name}: it has no known good yet" for name in unknown),
        )
    )


class KnownGoodGone(Exception):
    """There is no known-good build to measure; the message says why."""


def known_good_build(context: Context, name: str, now: Build) -> Generator[Tick, None, Build]:
    """A variant's known-good build, from the cache or built again from its commit.

    Raises KnownGoodGone if there is none, or if it equals the current build `now`.
    """
    known, bench = context.past.known_good.get(name), context.bench
    if known is None:
        raise KnownGoodGone("no earlier session on this device passed")
    if known.build_id == now.build_id:
        raise KnownGoodGone(f"it is the known good itself, built from the sources of {known.session}")
    if kept := build.find_build_by_id(name, known.build_id, bench.cache):
        return kept
    if known.commit is None:
        raise KnownGoodGone(f"the build of {known.session} has left the cache, and its sources were not committed")
    commit, where = known.commit[:12], {"cache": bench.cache, "include": bench.include}
    try:
        with locked_temporary_folder(bench.cache, ".known-good-") as folder:
            place = export(context.task.folder, known.commit, folder)
            variant = read_file(place / "target.yaml", Target).value.variants.get(name)
            if not isinstance(variant, CAbiVariant):
                raise KnownGoodGone(f"{commit} has no compiled variant {name}")
            again = yield from build.build(name, variant, place, **where, limit_s=context.kill_after_s)
    except (BuildFailed, LoopError) as failed:
        raise KnownGoodGone(f"{commit} of {known.session} no longer builds: {failed}") from failed
    if again.build_id != known.build_id:
        why = "the compiler changed, or files were not committed"
        raise KnownGoodGone(f"{commit} builds to something else than {known.session} measured: {why}")
    return again
