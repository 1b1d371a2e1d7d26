"""Passed and failed checks of a session, and the builds that any session found wrong."""

from collections.abc import Iterator, Sequence

from loop.model.index import Judgement, SessionRow
from loop.model.measurement import PropertyCheck
from loop.model.output import Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, SessionHead
from loop.model.sanitizing import SanitizeOutput

TIMING_ACTIONS = ("kernel.measure", "kernel.compare")
"""Timing actions. They check outputs too."""


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
    """Each check of a session: a judgement without results, the check's name, and whether it passed."""
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


def wrong_builds(rows: Sequence[SessionRow]) -> set[tuple[str, str, str]]:
    """Builds that failed any check: (variant, build id, ""), or (variant, "", hash of files) of Python."""
    builds = set[tuple[str, str, str]]()
    for row in rows:
        for judgement in row.judged:
            if judgement.wrong:
                builds.add((judgement.variant, judgement.build, "" if judgement.build else row.ground))
    return builds
