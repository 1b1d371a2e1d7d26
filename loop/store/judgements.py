"""Checks of all sessions: unresolved failures of a variant, and workloads that no session checked.

Variant, workload, layout, threads, seed and device identify a check. A failure stays unresolved until
the same check passes on changed sources. If the same sources pass, the variant is flaky, not right.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loop.model.index import CheckKey, Judgement, SessionRow
from loop.model.measurement import PropertyCheck
from loop.model.output import Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, SessionHead
from loop.model.sanitizing import SanitizeOutput

TIMING_ACTIONS = ("kernel.measure", "kernel.compare")
"""Timing actions. They check outputs too."""
Sources = tuple[str, str]
"""Build id, and hash of the files that are not compiled: what a check was about."""


def judgements(head: SessionHead, steps: Sequence[Finished]) -> Iterator[Judgement]:
    """Passed and failed checks of a session, by build. A check that failed once counts as failed."""
    passed_by_check: dict[Judgement, dict[str, bool]] = {}
    for judgement, check, passed in _iterate_checks(head, steps):
        checks = passed_by_check.setdefault(judgement, {})
        checks[check] = passed and checks.get(check, True)
    for judgement, checks in passed_by_check.items():
        right = tuple(check for check, passed in checks.items() if passed)
        wrong = tuple(check for check in checks if check not in right)
        yield judgement.model_copy(update={"right": right, "wrong": wrong})


def _iterate_checks(head: SessionHead, steps: Sequence[Finished]) -> Iterator[tuple[Judgement, str, bool]]:
    """Each check of a session: the judgement it belongs to, without results, its name, and whether it passed."""
    # Debugging steps store `builds` in another form.
    build_steps = (step for step in steps if not step.action.startswith("debug."))
    builds = [build for step in build_steps for build in step.output.get("builds", ())]
    last_build_id = {build["variant"]: build["build_id"] for build in builds}
    copied_builds = {build["build_id"] for build in builds if not build.get("compiled", True)}
    session_threads = 0 if head.device == "cuda" else head.threads  # 0: threads do not matter on a GPU.

    def empty_judgement(
        variant: str, build: str, threads: int = session_threads, seed: int = head.seed, emulated: bool = False
    ) -> Judgement:
        """A judgement without results. It names no build of a Python variant, which its files identify."""
        build = "" if build in copied_builds else build
        return Judgement(variant=variant, build=build, threads=threads, seed=seed, emulated=emulated)

    for step in steps:
        output = read_output(step, VerifyOutput)
        if output is None or (output.control is not None and not output.control.is_right):
            continue  # The library failed the same checks, so they prove nothing.
        for checks in output.variants:
            is_judged = checks.variant in output.right or checks.first_failure is not None
            emulated = checks.emulated or step.action == "kernel.emulate"
            for check in checks.checks if is_judged else ():
                threads = session_threads and (check.threads or session_threads)
                layout = "" if check.inputs == "contiguous" else f", {check.inputs}"
                judgement = empty_judgement(checks.variant, checks.build_id or "", threads, output.seed, emulated)
                yield judgement, f"{check.workload.name}{layout}", check.passed
    for step in steps:
        for fields in step.output.get("checks", ()) if step.action == "kernel.properties" else ():
            tested = PropertyCheck.model_validate(fields, extra="ignore")
            if tested.status != "inapplicable":
                judgement = empty_judgement(tested.variant, last_build_id.get(tested.variant, ""))
                yield judgement, f"{tested.workload}, property {tested.property}", tested.status == "holds"
        timing_output = read_output(step, Output) if step.action in TIMING_ACTIONS else None
        for verdict in timing_output.verdicts if timing_output else ():
            if verdict.verdict != "invalid":
                judgement = empty_judgement(verdict.variant, last_build_id.get(verdict.variant, ""))
                name = f"{verdict.workload}, timed against {verdict.against}"
                yield judgement, name, verdict.verdict != "incorrect"
    for report in outputs_of(steps, SanitizeOutput):
        for variant in (*report.clean, *report.found):
            yield empty_judgement(variant, last_build_id.get(variant, "")), "sanitizers", variant in report.clean


@dataclass(frozen=True)
class UnresolvedFailure:
    """A failed check of a variant that has not passed on changed sources since."""

    row: SessionRow
    """The last session in which it failed."""
    judgement: Judgement
    check: str
    passed_in: str = ""
    """A session in which the same sources passed this check; empty if there is none."""

    @property
    def explanation(self) -> str:
        """One sentence for reports: is the failure flaky, or has nothing passed since?"""
        if self.passed_in:
            return f"the same sources passed in {self.passed_in}: it is flaky, not right"
        return "no other sources have passed that since"


def unresolved_failures(
    rows: Sequence[SessionRow], ground: str, declared: Mapping[str, Collection[str]]
) -> tuple[UnresolvedFailure, ...]:
    """Unresolved failures of the variants, latest first.
    `rows`: sessions of one target, oldest first. `ground`: hash of the target's current files; a
    failure on these files stays, even if other files passed in between. `declared`: variant to its
    workload names. A failure on a removed workload ends when a session finds changed sources right."""
    row_number = {row.id: number for number, row in enumerate(rows)}
    passes: dict[CheckKey, list[tuple[Sources, str]]] = {}  # With the session's id.
    passes_without_failure: dict[str, list[tuple[Sources, str]]] = {}  # Of a variant in one session.
    last_failures: dict[tuple[CheckKey, Sources], UnresolvedFailure] = {}
    present_sources = set[tuple[str, Sources]]()
    for row in rows:
        for judgement in () if row.recorded else row.judged:
            # `harness`: hash of the files that are not compiled; the build id stands for the others.
            variant, sources = judgement.variant, (judgement.build, row.harness or row.ground)
            if row.ground == ground:
                present_sources.add((variant, sources))
            for check in judgement.right:
                passes.setdefault(judgement.check_key(check, row.device), []).append((sources, row.id))
            if not judgement.wrong:
                passes_without_failure.setdefault(variant, []).append((sources, row.id))
            for check in judgement.wrong:
                failure = UnresolvedFailure(row, judgement, check)
                last_failures[judgement.check_key(check, row.device), sources] = failure
    unresolved = []
    latest_first = sorted(last_failures.items(), key=lambda item: -row_number[item[1].row.id])
    for (key, sources), failure in latest_first:
        variant, check = failure.judgement.variant, failure.check
        if variant not in declared:
            continue
        passes_of_check = list(passes.get(key, ()))
        # A check's name begins with its workload, except `sanitizers`.
        if check != "sanitizers" and check.partition(", ")[0] not in declared[variant]:
            passes_of_check += passes_without_failure.get(variant, ())  # Nothing repeats a removed workload.
        failed_in_row = row_number[failure.row.id]
        is_resolved = any(row_number[id_] > failed_in_row and other != sources for other, id_ in passes_of_check)
        if not is_resolved or (variant, sources) in present_sources:
            passed_in = [id_ for other, id_ in passes.get(key, ()) if other == sources]
            unresolved.append(replace(failure, passed_in=passed_in[-1] if passed_in else ""))
    return tuple(unresolved)


def sessions_with_failures(rows: Sequence[SessionRow]) -> set[str]:
    """Ids of the sessions that have an unresolved failure, on any workload."""
    judgements = [judgement for row in rows for judgement in row.judged]
    workloads = {check.partition(", ")[0] for judgement in judgements for check in judgement.wrong}
    declared = {judgement.variant: workloads for judgement in judgements}
    return {failure.row.id for failure in unresolved_failures(rows, "", declared)}


def unchecked_sets(
    rows: Sequence[SessionRow], ground: str, declared: Mapping[str, Mapping[str, Collection[str]]]
) -> dict[str, tuple[str, ...]]:
    """Variant to workload sets that no session fully checked, as in `edges (2 of 12 workloads)`.
    `ground`: hash of the target's files. `declared`: variant to set name to workload names."""
    checked_by_variant: dict[str, set[str]] = {}
    for row in rows:
        for judgement in row.judged if row.ground == ground and not row.recorded else ():
            checked_by_variant.setdefault(judgement.variant, set()).update(judgement.right, judgement.wrong)
    unchecked: dict[str, tuple[str, ...]] = {}
    for variant, sets in declared.items():
        texts = []
        for name, workloads in sets.items():
            count, missing = len(workloads), len(set(workloads) - checked_by_variant.get(variant, set()))
            if missing:
                texts.append(name if missing == count else f"{name} ({missing} of {count} workloads)")
        if texts:
            unchecked[variant] = tuple(texts)
    return unchecked


def wrong_builds(rows: Sequence[SessionRow]) -> set[tuple[str, str, str]]:
    """Wrong builds, by any check of any session: (variant, build id, hash of files if no build id)."""
    builds = set[tuple[str, str, str]]()
    for row in rows:
        for judgement in row.judged:
            if judgement.wrong:
                builds.add((judgement.variant, judgement.build, "" if judgement.build else row.ground))
    return builds
