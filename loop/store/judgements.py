"""What the checks of all sessions say of a variant: what stands against it, and what nobody has judged.

A check is known by its variant, workload, layout, threads, seed and device. A failed one stands until the same
check passes on other sources. Where the same sources pass it, the variant is flaky, and still not right.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loop.model.index import Judgement, SessionRow
from loop.model.measurement import Check, PropertyCheck
from loop.model.output import Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, SessionHead
from loop.model.sanitizing import SanitizeOutput

TIMES = ("kernel.measure", "kernel.compare")
"""Actions that check outputs while they time."""
Outcome = tuple[str, str, int | None, int, bool, str, bool]
"""Variant, build, threads (None: the session's), seed, whether it was emulated, check, and whether it passed."""


def judgements(head: SessionHead, steps: Sequence[Finished]) -> tuple[Judgement, ...]:
    """What the checks of a session say. A check that failed once in it is wrong, whatever came of it later."""
    made = [one for step in steps for one in step.output.get("builds", ())]
    builds = {one["variant"]: one["build_id"] for one in made}
    copies = {one["build_id"] for one in made if not one.get("compiled", True)}  # Of Python, which no build is of.
    grouped: dict[tuple[str, str, int, int, bool], dict[str, bool]] = {}
    for variant, build, threads, seed, emulated, check, passed in [
        *_verified(steps),
        *((name, builds.get(name, ""), None, head.seed, False, check, ok) for name, check, ok in _others(steps)),
    ]:
        called_with = 0 if head.device == "cuda" else threads or head.threads
        build = "" if build in copies else build
        checks = grouped.setdefault((variant, build, called_with, seed, emulated), {})
        checks[check] = passed and checks.get(check, True)
    return tuple(
        Judgement(
            variant=variant,
            build=build,
            threads=threads,
            seed=seed,
            emulated=emulated,
            right=tuple(name for name, passed in checks.items() if passed),
            wrong=tuple(name for name, passed in checks.items() if not passed),
        )
        for (variant, build, threads, seed, emulated), checks in grouped.items()
    )


def _verified(steps: Sequence[Finished]) -> Iterator[Outcome]:
    """Checks against the reference.

    Beside a control that failed they say nothing, nor where a step calls a variant neither right nor wrong.
    """
    for step in steps:
        output = read_output(step, VerifyOutput)
        if output is None or (output.control is not None and not output.control.right):
            continue
        for checks in output.variants:
            emulated = checks.emulated or step.action == "kernel.emulate"
            for check in checks.checks:
                if not check.passed or checks.variant in output.right or checks.first_failure:
                    build, name = checks.build_id or "", _name(check)
                    yield checks.variant, build, check.threads, output.seed, emulated, name, check.passed


def _name(check: Check) -> str:
    return check.workload.name if check.inputs == "contiguous" else f"{check.workload.name}, {check.inputs}"


def _others(steps: Sequence[Finished]) -> Iterator[tuple[str, str, bool]]:
    """Variant, check and whether it passed: properties, sanitizers, and outputs of timed calls."""
    for step in steps:
        if step.action == "kernel.properties":
            for one in (PropertyCheck.model_validate(o, strict=False) for o in step.output.get("checks", ())):
                if one.status != "inapplicable":
                    yield one.variant, f"{one.workload}, property {one.property}", one.status == "holds"
        timed = read_output(step, Output) if step.action in TIMES else None
        for verdict in timed.verdicts if timed else ():
            if verdict.verdict != "invalid":
                yield (
                    verdict.variant,
                    f"{verdict.workload}, timed against {verdict.against}",
                    verdict.verdict != "incorrect",
                )
    for output in outputs_of(steps, SanitizeOutput):
        yield from ((name, "sanitizers", name in output.clean) for name in (*output.clean, *output.found))


@dataclass(frozen=True)
class StandingFailure:
    """A check that a variant failed, and that has not passed since on other sources."""

    row: SessionRow
    """The last session in which it failed."""
    judgement: Judgement
    check: str
    flaky: str = ""
    """A session in which the same sources passed it; empty where none did."""


def standing(
    rows: Sequence[SessionRow], ground: str, declared: Mapping[str, Collection[str]]
) -> tuple[StandingFailure, ...]:
    """What stands against the variants, the latest first.

    `rows`: sessions of one target, oldest first. `ground`: hash of its files as they are. What failed on these
    files stands although other files passed it in between. `declared`: variant to the names of its workloads. A
    failure on a workload that the target no longer has stands until a session finds other sources right.
    """
    here = {(j.variant, row.sources(j)) for row in rows if row.ground == ground for j in row.judged}
    failed: dict[tuple[object, ...], dict[tuple[str, str], StandingFailure]] = {}
    passed: dict[tuple[object, ...], dict[tuple[str, str], str]] = {}
    for row in (row for row in rows if not row.recorded):
        for judgement in row.judged:
            sources = row.sources(judgement)
            for check in judgement.right:
                key = _key(row, judgement, check)
                passed.setdefault(key, {})[sources] = row.id
                for other, failure in list(failed.get(key, {}).items()):
                    if other == sources:
                        failed[key][other] = replace(failure, flaky=row.id)
                    elif (judgement.variant, other) not in here:
                        del failed[key][other]
            for check in judgement.wrong:
                key = _key(row, judgement, check)
                flaky = passed.get(key, {}).get(sources, "")
                failed.setdefault(key, {})[sources] = StandingFailure(row, judgement, check, flaky)
            if judgement.right and not judgement.wrong:
                _forget_undeclared(failed, judgement.variant, sources, declared.get(judgement.variant, ()))
    found = [one for same in failed.values() for one in same.values() if one.judgement.variant in declared]
    order = {row.id: place for place, row in enumerate(rows)}
    return tuple(sorted(found, key=lambda one: -order[one.row.id]))


def _key(row: SessionRow, judgement: Judgement, check: str) -> tuple[object, ...]:
    return judgement.variant, check, judgement.threads, judgement.seed, judgement.emulated, row.device


def _forget_undeclared(
    failed: dict[tuple[object, ...], dict[tuple[str, str], StandingFailure]],
    variant: str,
    sources: tuple[str, str],
    names: Collection[str],
) -> None:
    """Drop failures of other sources on workloads that the target no longer has: no session can try those."""
    for same in failed.values():
        for other, failure in list(same.items()):
            gone = failure.check != "sanitizers" and failure.check.partition(", ")[0] not in names
            if failure.judgement.variant == variant and other != sources and gone:
                del same[other]


def standing_in(rows: Sequence[SessionRow]) -> set[str]:
    """Sessions in which something failed that has not passed since on other sources."""
    every = [judgement for row in rows for judgement in row.judged]
    names = {check.partition(", ")[0] for judgement in every for check in judgement.wrong}
    return {one.row.id for one in standing(rows, "", {judgement.variant: names for judgement in every})}


def unjudged(
    rows: Sequence[SessionRow], ground: str, declared: Mapping[str, Mapping[str, Collection[str]]]
) -> dict[str, tuple[str, ...]]:
    """Variant to the sets of workloads that no session judged on these files: `edges (2 of 12 workloads)`.

    `declared`: variant to its sets to the names of their workloads.
    """
    seen: dict[str, set[str]] = {}
    for row in rows:
        if row.ground == ground and not row.recorded:
            for judgement in row.judged:
                seen.setdefault(judgement.variant, set()).update(judgement.right, judgement.wrong)
    found: dict[str, tuple[str, ...]] = {}
    for variant, sets in declared.items():
        missing = {name: set(every) - seen.get(variant, set()) for name, every in sets.items()}
        texts = tuple(
            name
            if len(missing[name]) == len(every)
            else f"{name} ({len(missing[name])} of {len(every)} workloads)"
            for name, every in sets.items()
            if missing[name]
        )
        found |= {variant: texts} if texts else {}
    return found


def wrong_builds(rows: Sequence[SessionRow]) -> set[tuple[str, str, str]]:
    """Variant, build and target's files of everything that any check of any session found wrong."""
    return {(j.variant, j.build, "" if j.build else row.ground) for row in rows for j in row.judged if j.wrong}
