"""What the advice of a session promised, and what came of it there: for the index, from the steps of a journal."""

from collections.abc import Iterator, Sequence
from typing import Any

from loop.model.gain import GainOutcome, Promise, Promised
from loop.model.record import Finished
from loop.model.verdict import Verdict

BUILDS, PROFILES, DECIDES = "kernel.build", "kernel.profile", "change.decide"
"""Actions that say it."""


def of_session(steps: Sequence[Finished]) -> dict[str, Any]:
    """Builds, promises and gains, by the names of their fields in a row."""
    builds = {one["variant"]: one["build_id"] for one in _parts(steps, BUILDS, "builds")}
    promises = {one["variant"]: _promised(one, builds) for one in _parts(steps, PROFILES, "profiles")}
    return {
        "builds": builds,
        "promises": tuple(one for one in promises.values() if one),
        "gains": tuple(_gains(steps)),
    }


def speeds(verdicts: Sequence[Verdict]) -> dict[str, dict[str, float]]:
    """Ratios against the baseline, by variant and workload, of what could be judged."""
    found: dict[str, dict[str, float]] = {}
    for one in verdicts:
        if one.ratio is not None and one.against == "baseline" and one.verdict != "inconclusive":
            found.setdefault(one.variant, {})[one.workload] = one.ratio
    return found


def _parts(steps: Sequence[Finished], action: str, field: str) -> list[dict[str, Any]]:
    return [one for step in steps if step.action == action for one in step.output.get(field, ())]


def _promised(profile: dict[str, Any], builds: dict[str, str]) -> Promised | None:
    """The promise of a profile; None where it made none, or of a variant that `loop` does not build."""
    promise, build = profile.get("promise"), builds.get(profile["variant"])
    if promise is None or build is None:
        return None
    return Promised(
        promise=Promise.model_validate(promise),
        variant=profile["variant"],
        workload=profile["workload"],
        build=build,
        ratio=profile["facts"]["ratio"],
    )


def _gains(steps: Sequence[Finished]) -> Iterator[GainOutcome]:
    tried = (step.output.get("tried") for step in steps if step.action == DECIDES)
    for one in tried:
        if one and one.get("promised"):
            yield GainOutcome.model_validate(one["promised"])
