"""What the checks of all sessions say of a variant: what stands against it, and what nobody has judged.

A check is known by its variant, workload, layout, threads, seed and device. A failed one stands until the same
check passes on other sources. Where the same sources pass it, the variant is flaky, and still not right.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loop.model.index import CheckKey, Judgement, SessionRow
from loop.model.measurement import PropertyCheck
from loop.model.output import Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, SessionHead
from loop.model.sanitizing import SanitizeOutput

TIMES = ("kernel.measure", "kernel.compare")
"""Actions that check outputs while they time."""
Outcome = tuple[Judgement, str, bool]
"""A judgement without checks, one check of it, and whether that passed."""
Pass = tuple[int, tuple[str, str], str]
"""That sources passed a check: place of the session among all, the sources, and the session."""


def judgements(head: SessionHead, steps: Sequence[Finished]) -> tuple[Judgement, ...]:
    """What the checks of a session say. A check that failed once in it is wrong, whatever came of it later."""
    grouped: dict[Judgement, dict[str, bool]] = {}
    for judgement, check, passed in (*_verified(head, steps), *_others(head, steps)):
        checks = grouped.setdefault(judgement, {})
        checks[check] = passed and checks.get(check, True)
    return tuple(
        judgement.model_copy(
            update={
                "right": tuple(check for check, passed in checks.items() if passed),
                "wrong": tuple(check for check, passed in checks.items() if not passed),
            }
        )
        for judgement, checks in grouped.items()
    )


def _verified(head: SessionHead, steps: Sequence[Finished]) -> Iterator[Outcome]:
    """Checks against the reference.

    Beside a control that failed they say nothing, nor where a step calls a variant neither right nor wrong.
    """
    _, copies = _builds(steps)
    for step in steps:
        output = read_output(step, VerifyOutput)
        if output is None or (output.control is not None and not output.control.right):
            continue
        for checks in output.variants:
            build = checks.build_id or ""
            for check in checks.checks:
                name = check.workload.name
                if not check.passed or checks.variant in output.right or checks.first_failure:
                    judgement = Judgement(
                        variant=checks.variant,
                        build="" if build in copies else build,
                        threads=0 if head.device == "cuda" else check.threads or head.threads,
                        seed=output.seed,
                        emulated=checks.emulated or step.action == "kernel.emulate",
                    )
                    layout = "" if check.inputs == "contiguous" else f", {check.inputs}"
                    yield judgement, f"{name}{layout}", check.passed


def _others(head: SessionHead, steps: Sequence[Finished]) -> Iterator[Outcome]:
    """Properties, sanitizers, and outputs of timed calls."""
    builds, copies = _builds(steps)
    threads = 0 if head.device == "cuda" else head.threads

    def judged(variant: str) -> Judgement:
        build = builds.get(variant, "")
        return Judgement(variant=variant, build="" if build in copies else build, threads=threads, seed=head.seed)

    for step in steps:
        if step.action == "kernel.properties":
            for fields in step.output.get("checks", ()):
                check = PropertyCheck.model_validate(fields, strict=False)
                if check.status != "inapplicable":
                    name = f"{check.workload}, property {check.property}"
                    yield judged(check.variant), name, check.status == "holds"
        timed = read_output(step, Output) if step.action in TIMES else None
        for verdict in timed.verdicts if timed else ():
            if verdict.verdict != "invalid":
                name = f"{verdict.workload}, timed against {verdict.against}"
                yield judged(verdict.variant), name, verdict.verdict != "incorrect"
    for output in outputs_of(steps, SanitizeOutput):
        for variant in (*output.clean, *output.found):
            yield judged(variant), "sanitizers", variant in output.clean


def _builds(steps: Sequence[Finished]) -> tuple[dict[str, str], set[str]]:
    """Variant to its last build, and the builds that are copies of Python files: no judgement is of these."""
    builds = [build for step in steps for build in step.output.get("builds", ())]
    copies = {build["build_id"] for build in builds if not build.get("compiled", True)}
    return {build["variant"]: build["build_id"] for build in builds}, copies


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
    judged = [(place, row, j) for place, row in enumerate(rows) if not row.recorded for j in row.judged]
    passed: dict[CheckKey, list[Pass]] = {}
    clean: dict[str, list[Pass]] = {}
    last: dict[tuple[CheckKey, tuple[str, str]], tuple[int, StandingFailure]] = {}
    for place, row, judgement in judged:
        sources = row.sources(judgement)
        for check in judgement.right:
            passed.setdefault(judgement.key(check, row.device), []).append((place, sources, row.id))
        if not judgement.wrong:
            clean.setdefault(judgement.variant, []).append((place, sources, row.id))
        for check in judgement.wrong:
            last[judgement.key(check, row.device), sources] = place, StandingFailure(row, judgement, check)
    here = {(j.variant, row.sources(j)) for _, row, j in judged if row.ground == ground}
    stands = []
    for (key, sources), (place, failure) in sorted(last.items(), key=lambda item: -item[1][0]):
        variant, check = key[:2]
        if variant not in declared:
            continue
        gone = check != "sanitizers" and check.partition(", ")[0] not in declared[variant]
        passes = passed.get(key, [])
        since = [*passes, *(clean.get(variant, []) if gone else [])]
        mended = any(later > place and others != sources for later, others, _ in since)
        if not mended or (variant, sources) in here:
            flaky = [session for _, others, session in passes if others == sources]
            stands.append(StandingFailure(failure.row, failure.judgement, check, flaky[-1] if flaky else ""))
    return tuple(stands)


def standing_in(rows: Sequence[SessionRow]) -> set[str]:
    """Sessions in which something failed that has not passed since on other sources."""
    every = [judgement for row in rows for judgement in row.judged]
    names = {check.partition(", ")[0] for judgement in every for check in judgement.wrong}
    return {failure.row.id for failure in standing(rows, "", {judgement.variant: names for judgement in every})}


def unjudged(
    rows: Sequence[SessionRow], ground: str, declared: Mapping[str, Mapping[str, Collection[str]]]
) -> dict[str, tuple[str, ...]]:
    """Variant to the sets of workloads that no session judged on these files: `edges (2 of 12 workloads)`.

    `declared`: variant to its sets to the names of their workloads.
    """
    judged: dict[str, set[str]] = {}
    for row in rows:
        if row.ground == ground and not row.recorded:
            for judgement in row.judged:
                judged.setdefault(judgement.variant, set()).update(judgement.right, judgement.wrong)
    missing: dict[str, tuple[str, ...]] = {}
    for variant, sets in declared.items():
        texts = []
        for name, workloads in sets.items():
            rest = len(set(workloads) - judged.get(variant, set()))
            if rest:
                texts.append(name if rest == len(workloads) else f"{name} ({rest} of {len(workloads)} workloads)")
        if texts:
            missing[variant] = tuple(texts)
    return missing


def wrong_builds(rows: Sequence[SessionRow]) -> set[tuple[str, str, str]]:
    """Variant, build and target's files of everything that any check of any session found wrong."""
    return {(j.variant, j.build, "" if j.build else row.ground) for row in rows for j in row.judged if j.wrong}
