"""Checks of all sessions: unresolved failures of a variant, and workloads that no session checked.

Variant, workload, layout, threads, seed and device identify a check. A failure stays unresolved until
the same check passes on changed sources. If the same sources pass, the variant is flaky, not right.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loop.model.index import CheckKey, Judgement, SessionRow
from loop.model.measurement import PropertyCheck
from loop.model.output import Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, SessionHead
from loop.model.sanitizing import SanitizeOutput

TIMES = ("kernel.measure", "kernel.compare")
"""Timing actions. They check outputs too."""
Pass = tuple[int, tuple[str, str], str]
"""A passed check: index of its session (oldest 0), key of the sources, and id of the session."""


def judgements(head: SessionHead, steps: Sequence[Finished]) -> Iterator[Judgement]:
    """Passed and failed checks of a session, by build. A check that failed once counts as failed."""
    grouped: dict[Judgement, dict[str, bool]] = {}
    for judgement, check, passed in _outcomes(head, steps):
        checks = grouped.setdefault(judgement, {})
        checks[check] = passed and checks.get(check, True)
    for judgement, checks in grouped.items():
        right = tuple(check for check, passed in checks.items() if passed)
        wrong = tuple(check for check in checks if check not in right)
        yield judgement.model_copy(update={"right": right, "wrong": wrong})


def _outcomes(head: SessionHead, steps: Sequence[Finished]) -> Iterator[tuple[Judgement, str, bool]]:
    """Each check of a session: its judgement (still empty), its name, and whether it passed."""
    # Debugging steps store `builds` in another form.
    built = (step for step in steps if not step.action.startswith("debug."))
    builds = [build for step in built for build in step.output.get("builds", ())]
    last = {build["variant"]: build["build_id"] for build in builds}
    copies = {build["build_id"] for build in builds if not build.get("compiled", True)}
    own = 0 if head.device == "cuda" else head.threads

    def judged(
        variant: str, build: str, threads: int = own, seed: int = head.seed, emulated: bool = False
    ) -> Judgement:
        build = "" if build in copies else build  # A Python variant is identified by its files.
        return Judgement(variant=variant, build=build, threads=threads, seed=seed, emulated=emulated)

    for step in steps:
        output = read_output(step, VerifyOutput)
        if output is None or (output.control is not None and not output.control.is_right):
            continue  # The library failed the same checks, so they prove nothing.
        for checks in output.variants:
            is_judged = checks.variant in output.right or checks.first_failure is not None
            emulated = checks.emulated or step.action == "kernel.emulate"
            for check in checks.checks if is_judged else ():
                threads = own and (check.threads or own)
                layout = "" if check.inputs == "contiguous" else f", {check.inputs}"
                judgement = judged(checks.variant, checks.build_id or "", threads, output.seed, emulated)
                yield judgement, f"{check.workload.name}{layout}", check.passed
    for step in steps:
        for fields in step.output.get("checks", ()) if step.action == "kernel.properties" else ():
            prop = PropertyCheck.model_validate(fields, extra="ignore")
            if prop.status != "inapplicable":
                name = f"{prop.workload}, property {prop.property}"
                yield judged(prop.variant, last.get(prop.variant, "")), name, prop.status == "holds"
        timed = read_output(step, Output) if step.action in TIMES else None
        for verdict in timed.verdicts if timed else ():
            if verdict.verdict != "invalid":
                judgement = judged(verdict.variant, last.get(verdict.variant, ""))
                name = f"{verdict.workload}, timed against {verdict.against}"
                yield judgement, name, verdict.verdict != "incorrect"
    for report in outputs_of(steps, SanitizeOutput):
        for variant in (*report.clean, *report.found):
            yield judged(variant, last.get(variant, "")), "sanitizers", variant in report.clean


@dataclass(frozen=True)
class StandingFailure:
    """A failed check of a variant that has not passed on changed sources since."""

    row: SessionRow
    """The last session in which it failed."""
    judgement: Judgement
    check: str
    flaky: str = ""
    """A session in which the same sources passed this check; empty if there is none."""

    @property
    def since(self) -> str:
        """One sentence for reports: is the failure flaky, or has nothing passed since?"""
        if self.flaky:
            return f"the same sources passed in {self.flaky}: it is flaky, not right"
        return "no other sources have passed that since"


def standing_failures(
    rows: Sequence[SessionRow], ground: str, declared: Mapping[str, Collection[str]]
) -> tuple[StandingFailure, ...]:
    """Unresolved failures of the variants, latest first.

    `rows`: sessions of one target, oldest first. `ground`: hash of the target's current files; a
    failure on these files stays, even if other files passed in between. `declared`: variant to its
    workload names. A failure on a removed workload ends when a session finds changed sources right.
    """
    passed: dict[CheckKey, list[Pass]] = {}
    clean: dict[str, list[Pass]] = {}
    last: dict[tuple[CheckKey, tuple[str, str]], tuple[int, SessionRow, Judgement, str]] = {}
    here = set[tuple[str, tuple[str, str]]]()
    for place, row in enumerate(rows):
        for judgement in () if row.recorded else row.judged:
            sources = row.judged_sources(judgement)
            here |= {(judgement.variant, sources)} if row.ground == ground else set()
            for check in judgement.right:
                passed.setdefault(judgement.check_key(check, row.device), []).append((place, sources, row.id))
            if not judgement.wrong:
                clean.setdefault(judgement.variant, []).append((place, sources, row.id))
            for check in judgement.wrong:
                last[judgement.check_key(check, row.device), sources] = place, row, judgement, check
    stands = []
    for (key, sources), (place, row, judgement, check) in sorted(last.items(), key=lambda item: -item[1][0]):
        variant, passes = judgement.variant, passed.get(key, [])
        if variant not in declared:
            continue
        is_gone = check != "sanitizers" and check.partition(", ")[0] not in declared[variant]
        since = [*passes, *(clean.get(variant, []) if is_gone else [])]
        is_mended = any(later > place and others != sources for later, others, _ in since)
        if not is_mended or (variant, sources) in here:
            flaky = [session for _, others, session in passes if others == sources]
            stands.append(StandingFailure(row, judgement, check, flaky[-1] if flaky else ""))
    return tuple(stands)


def standing_in(rows: Sequence[SessionRow]) -> set[str]:
    """Ids of the sessions that have an unresolved failure, on any workload."""
    every = [judgement for row in rows for judgement in row.judged]
    names = {check.partition(", ")[0] for judgement in every for check in judgement.wrong}
    declared = {judgement.variant: names for judgement in every}
    return {failure.row.id for failure in standing_failures(rows, "", declared)}


def unjudged_sets(
    rows: Sequence[SessionRow], ground: str, declared: Mapping[str, Mapping[str, Collection[str]]]
) -> dict[str, tuple[str, ...]]:
    """Variant to workload sets that no session fully checked, as in `edges (2 of 12 workloads)`.

    `ground`: hash of the target's files. `declared`: variant to set name to workload names."""
    missing: dict[str, tuple[str, ...]] = {}
    own = [row for row in rows if row.ground == ground and not row.recorded]
    for variant, sets in declared.items():
        mine = [j for row in own for j in row.judged if j.variant == variant]
        checks = {check for j in mine for check in (*j.right, *j.wrong)}
        texts = []
        for name, workloads in sets.items():
            count, rest = len(workloads), len(set(workloads) - checks)
            if rest:
                texts.append(name if rest == count else f"{name} ({rest} of {count} workloads)")
        if texts:
            missing[variant] = tuple(texts)
    return missing


def wrong_builds(rows: Sequence[SessionRow]) -> set[tuple[str, str, str]]:
    """Wrong builds, by any check of any session: (variant, build id, hash of files if no build id)."""
    wrong = [(row, judgement) for row in rows for judgement in row.judged if judgement.wrong]
    return {(j.variant, j.build, "" if j.build else row.ground) for row, j in wrong}
