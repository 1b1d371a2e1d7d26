"""What the checks of all sessions say of a variant: what stands against it, and what nobody has judged.

A check is known by its variant, workload, layout, threads, seed and device. A failed one stands until the same
check passes on other sources. Where the same sources pass it, the variant is flaky, and still not right.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loop.model.index import Judgement, SessionRow
from loop.model.measurement import PropertyCheck
from loop.model.output import Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, SessionHead
from loop.model.sanitizing import SanitizeOutput

TIMES = ("kernel.measure", "kernel.compare")
"""Actions that check outputs while they time."""


class Outcome(NamedTuple):
    """One check; what is None is the session's."""

    variant: str
    check: str
    passed: bool
    build: str | None = None
    threads: int | None = None
    seed: int | None = None
    emulated: bool = False


def judgements(head: SessionHead, steps: Sequence[Finished]) -> tuple[Judgement, ...]:
    """What the checks of a session say. A check that failed once in it is wrong, whatever came of it later."""
    builds_made = [build for step in steps for build in step.output.get("builds", ())]
    copies = {
        build["build_id"] for build in builds_made if not build.get("compiled", True)
    }  # Of Python, which no build is of.
    builds = {build["variant"]: build["build_id"] for build in builds_made}
    grouped: dict[Judgement, dict[str, bool]] = {}
    for outcome in (*_verified(steps), *_others(steps)):
        build = builds.get(outcome.variant, "") if outcome.build is None else outcome.build
        judgement = Judgement(
            variant=outcome.variant,
            build="" if build in copies else build,
            threads=0 if head.device == "cuda" else outcome.threads or head.threads,
            seed=head.seed if outcome.seed is None else outcome.seed,
            emulated=outcome.emulated,
        )
        checks = grouped.setdefault(judgement, {})
        checks[outcome.check] = outcome.passed and checks.get(outcome.check, True)
    every = []
    for judgement, checks in grouped.items():
        right = tuple(name for name, passed in checks.items() if passed)
        wrong = tuple(name for name, passed in checks.items() if not passed)
        every.append(judgement.model_copy(update={"right": right, "wrong": wrong}))
    return tuple(every)


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
                name = check.workload.name
                if not check.passed or checks.variant in output.right or checks.first_failure:
                    yield Outcome(
                        variant=checks.variant,
                        check=name if check.inputs == "contiguous" else f"{name}, {check.inputs}",
                        passed=check.passed,
                        build=checks.build_id or "",
                        threads=check.threads,
                        seed=output.seed,
                        emulated=emulated,
                    )


def _others(steps: Sequence[Finished]) -> Iterator[Outcome]:
    """Properties, sanitizers, and outputs of timed calls."""
    for step in steps:
        if step.action == "kernel.properties":
            for one in (PropertyCheck.model_validate(o, strict=False) for o in step.output.get("checks", ())):
                if one.status != "inapplicable":
                    check = f"{one.workload}, property {one.property}"
                    yield Outcome(one.variant, check, one.status == "holds")
        timed = read_output(step, Output) if step.action in TIMES else None
        for verdict in timed.verdicts if timed else ():
            if verdict.verdict != "invalid":
                check = f"{verdict.workload}, timed against {verdict.against}"
                yield Outcome(verdict.variant, check, verdict.verdict != "incorrect")
    for output in outputs_of(steps, SanitizeOutput):
        yield from (Outcome(name, "sanitizers", name in output.clean) for name in (*output.clean, *output.found))


Key = tuple[str, str, int, int, bool, str]
"""Variant, check, threads, seed, whether it was emulated, and device."""


class Passed(NamedTuple):
    """That sources passed a check."""

    place: int
    """Of the session among all."""
    sources: tuple[str, str]
    session: str


@dataclass(frozen=True)
class PastJudgements:
    """All judgements of some sessions, the oldest first, by what they passed."""

    judged: list[tuple[int, SessionRow, Judgement]]
    passed: dict[Key, list[Passed]]
    clean: dict[str, list[Passed]]
    """Variant to the judgements in which nothing failed."""

    @classmethod
    def of(cls, rows: Sequence[SessionRow]) -> "PastJudgements":
        """That of sessions of one target."""
        own = ((place, row) for place, row in enumerate(rows) if not row.recorded)
        past = cls([(place, row, judgement) for place, row in own for judgement in row.judged], {}, {})
        for place, row, judgement in past.judged:
            passed = Passed(place, row.sources(judgement), row.id)
            for check in judgement.right:
                past.passed.setdefault(_key(row, judgement, check), []).append(passed)
            if not judgement.wrong:
                past.clean.setdefault(judgement.variant, []).append(passed)
        return past

    @property
    def failures(self) -> list[tuple[int, SessionRow, Judgement, str]]:
        """The last failure of each check of each sources, the latest first."""
        every = [
            (place, row, judgement, check) for place, row, judgement in self.judged for check in judgement.wrong
        ]
        last = {
            (_key(row, judgement, check), row.sources(judgement)): (place, row, judgement, check)
            for place, row, judgement, check in every
        }
        return sorted(last.values(), key=lambda failure: -failure[0])

    def passes(self, key: Key, *, whole: bool = False) -> list[Passed]:
        """Where a check passed. `whole`: or everything that was checked of its variant."""
        return [*self.passed.get(key, ()), *(self.clean.get(key[0], ()) if whole else ())]


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
    past, found = PastJudgements.of(rows), []
    here = {(j.variant, row.sources(j)) for _, row, j in past.judged if row.ground == ground}
    for place, row, judgement, check in past.failures:
        key, sources, names = _key(row, judgement, check), row.sources(judgement), declared.get(judgement.variant)
        if names is not None:
            gone = check != "sanitizers" and check.partition(", ")[0] not in names
            since = [passing for passing in past.passes(key, whole=gone) if passing.place > place]
            mended = any(passing.sources != sources for passing in since)
            if not mended or (judgement.variant, sources) in here:
                flaky = [passing.session for passing in past.passes(key) if passing.sources == sources]
                found.append(StandingFailure(row, judgement, check, flaky[-1] if flaky else ""))
    return tuple(found)


def _key(row: SessionRow, judgement: Judgement, check: str) -> Key:
    """What has to pass again."""
    return judgement.variant, check, judgement.threads, judgement.seed, judgement.emulated, row.device


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
    found: dict[str, tuple[str, ...]] = {}
    for variant, sets in declared.items():
        missing = {name: set(every) - judged.get(variant, set()) for name, every in sets.items()}
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
