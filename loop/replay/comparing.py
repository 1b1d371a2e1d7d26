"""Is what a recipe found what its session found?"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from loop.replay.expectations import CheckKey, KernelKey
from loop.replay.model import (
    Expected,
    ExpectedBuild,
    ExpectedCheck,
    ExpectedKernel,
    ExpectedMachine,
    ExpectedSpeed,
)

Kind = TypeVar("Kind", bound=Expected)
Timed = TypeVar("Timed", ExpectedSpeed, ExpectedKernel)
VAGUE = 4.0
"""An interval whose ends differ by this factor agrees with anything."""


@dataclass(frozen=True)
class Found:
    """What the commands of a recipe found."""

    machine: ExpectedMachine
    builds: Mapping[str, Mapping[str, str]]
    """Variant to its build ids, each with its compiler."""
    checks: Mapping[CheckKey, ExpectedCheck]
    speeds: Mapping[tuple[str, str], ExpectedSpeed]
    kernels: Mapping[KernelKey, ExpectedKernel]
    same_code: Callable[[str], bool | None]
    """Whether the recipe's own line made the code that loop's build of an id holds; None where one is missing."""
    said: Mapping[str, str] = field(default_factory=dict)
    """What the steps that failed said, by name."""


@dataclass
class Comparison:
    """What differs, and what cannot be compared here."""

    compared: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def compare(expected: Sequence[Expected], found: Found) -> Comparison:
    """Every expectation against what was found."""
    result = Comparison()
    elsewhere = "".join(_elsewhere(one, found.machine) for one in _of(expected, ExpectedMachine))
    builds = _of(expected, ExpectedBuild)
    others = {one.variant for one in builds if _otherwise_built(one, found)}
    unbuilt = {one.variant for one in builds if one.variant not in found.builds}
    _compare_checks(result, _of(expected, ExpectedCheck), found, unbuilt)
    _compare_builds(result, builds, found, elsewhere)
    _compare_speeds(result, _alike(expected, ExpectedSpeed, others), found, elsewhere)
    _compare_kernels(result, _alike(expected, ExpectedKernel, others), found)
    if not (result.compared or result.differs or result.unknown):
        result.unknown.append("the session found nothing that can be found again")
    return result


def _of(expected: Sequence[Expected], kind: type[Kind]) -> list[Kind]:
    return [one for one in expected if isinstance(one, kind)]


def _alike(expected: Sequence[Expected], kind: type[Timed], others: Container[str]) -> list[Timed]:
    """Those of variants that the same compilers made."""
    return [one for one in _of(expected, kind) if one.variant not in others]


def _count(result: Comparison, every: Sequence[object], what: str, note: str = "") -> None:
    if every:
        result.compared.append(f"{len(every)} {what}{'s' if len(every) > 1 else ''}{note}")


def _elsewhere(then: ExpectedMachine, now: ExpectedMachine) -> str:
    """In what this machine is another; empty for the same."""
    fields = ("processor", "cores", "gpus", "driver", "torch")
    values = ((name, getattr(now, name), getattr(then, name)) for name in fields)
    return "; ".join(f"{name} {_said(new)} (recorded: {_said(old)})" for name, new, old in values if new != old)


def _said(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)


def _otherwise_built(one: ExpectedBuild, found: Found) -> str:
    """That a library's compiler was not taken here, or none; empty where it was."""
    here = found.builds.get(one.variant, {})
    if not here:
        return f"no build of {one.variant}: {_why(found, 'build', 'emulate', 'resources')}"
    if not one.compiler or one.compiler in here.values():
        return ""
    other = f"{one.variant} was compiled by {one.compiler}, here by {', '.join(dict.fromkeys(here.values()))}"
    failed = found.said.get("build") or found.said.get("resources")
    return f"{other}: {failed}" if failed else other


def _why(found: Found, *steps: str) -> str:
    """What the first of these steps that failed said."""
    return next((found.said[name] for name in steps if name in found.said), "no step says why")


def _compare_checks(
    result: Comparison, checks: Sequence[ExpectedCheck], found: Found, unbuilt: Container[str]
) -> None:
    """Checks; those that were not made for want of a build are left out, since that is said."""
    told = [one for one in checks if one.variant not in unbuilt or _key(one) in found.checks]
    result.differs += _checks(told, found)
    _count(result, told, "check")


def _key(one: ExpectedCheck) -> CheckKey:
    return one.variant, one.workload, one.seed, one.inputs


def _checks(checks: Sequence[ExpectedCheck], found: Found) -> Iterator[str]:
    """What came out otherwise: a line for each variant and way of differing."""
    alike: dict[tuple[str, str, str], list[tuple[ExpectedCheck, ExpectedCheck | None]]] = {}
    for one in checks:
        now = found.checks.get(_key(one))
        if now is None or now.status != one.status or _less_exact(one, now):
            key = (one.variant, one.status, now.status if now else "")
            alike.setdefault(key, []).append((one, now))
    for (variant, then, status), pairs in alike.items():
        of = sum(one.variant == variant and one.status == then for one in checks)
        what = "less exact" if status == then else status or "not checked"
        yield f"{variant} is {what} on {len(pairs)} of {of} that were {then}, {_worst(pairs)}"


def _less_exact(one: ExpectedCheck, now: ExpectedCheck) -> bool:
    return one.at_most is not None and now.error is not None and now.error > one.at_most


def _worst(pairs: Sequence[tuple[ExpectedCheck, ExpectedCheck | None]]) -> str:
    """The check with the largest error, with the recorded one."""
    one, now = max(pairs, key=lambda pair: (pair[1].error or 0) if pair[1] else 0)
    place = one.workload if one.inputs == "contiguous" else f"{one.workload} with {one.inputs} inputs"
    if now is None or now.error is None or one.error is None:
        return place
    most = f", at most {one.at_most:.2g}" if one.at_most is not None else ""
    return f"largest error {now.error:.2g} on {place} (recorded: {one.error:.2g}{most})"


def _compare_builds(result: Comparison, builds: Sequence[ExpectedBuild], found: Found, elsewhere: str) -> None:
    """Build ids, and the code that the recipe's lines made, where the same compiler was taken."""
    untold = [_untold(one, found, elsewhere) for one in builds]
    alike = [one for one, why in zip(builds, untold, strict=True) if not why]
    result.unknown += dict.fromkeys(filter(None, untold))
    result.differs += [text for one in alike if (text := _build(one, found))]
    _count(result, alike, "build")


def _untold(one: ExpectedBuild, found: Found, elsewhere: str) -> str:
    """Why a build cannot be compared here; empty where it can."""
    if otherwise := _otherwise_built(one, found):
        return otherwise
    if one.build_id not in found.builds[one.variant]:
        return f"build of {one.variant} is of another machine: {elsewhere}" if elsewhere else ""
    unread = one.compiled and found.same_code(one.build_id) is None
    return f"code of {one.variant} cannot be read, or the recipe's line made none" if unread else ""


def _build(one: ExpectedBuild, found: Found) -> str:
    here = found.builds.get(one.variant, {})
    if one.build_id not in here:
        now = ", ".join(here) or "nothing"
        return f"build of {one.variant} is {now} (recorded: {one.build_id}): other files, flags or environment"
    if one.compiled and found.same_code(one.build_id) is False:
        return f"the recipe's line that compiles {one.variant} makes other code than loop does"
    return ""


@dataclass(frozen=True)
class Ratios:
    """One ratio then and now."""

    then: ExpectedSpeed
    now: ExpectedSpeed

    @property
    def meet(self) -> bool:
        """Whether the intervals meet, the recorded one made wider."""
        return self.now.interval[0] <= self.then.within[1] and self.then.within[0] <= self.now.interval[1]

    @property
    def vague(self) -> bool:
        """Whether today's interval agrees with anything, and the recorded one did not."""
        (low, high), then = self.now.interval, self.then.interval
        return self.meet and high > VAGUE * low and then[1] <= VAGUE * then[0]

    def __str__(self) -> str:
        then, now = self.then, self.now
        recorded = f"recorded: {_interval(then)}; within {then.within[0]:.3g} to {then.within[1]:.3g}"
        return f"ratio of {then.variant} on {then.workload} is {_interval(now)} ({recorded})"


def _interval(one: ExpectedSpeed) -> str:
    return f"{one.ratio:.3g}, {one.interval[0]:.3g} to {one.interval[1]:.3g}"


def _compare_speeds(result: Comparison, speeds: Sequence[ExpectedSpeed], found: Found, elsewhere: str) -> None:
    """Speeds, on the same machine; those of a variant that are all too noisy cannot be told."""
    if speeds and elsewhere:
        result.unknown.append(f"speeds are of another machine: {elsewhere}")
        return
    pairs = [Ratios(one, now) for one in speeds if (now := found.speeds.get((one.variant, one.workload)))]
    if len(pairs) < len(speeds):
        why = found.said.get("measure") or found.said.get("verify") or "nothing was measured"
        result.unknown.append(f"{len(speeds) - len(pairs)} of {len(speeds)} speeds are missing: {why}")
    result.differs += [str(one) for one in pairs if not one.meet]
    noisy = [one for one in pairs if one.vague]
    result.unknown += _only_noise(noisy, {one.then.variant for one in pairs if not one.vague})
    _count(result, speeds, "speed", f" ({len(noisy)} too noisy to tell)" if noisy else "")


def _only_noise(noisy: Sequence[Ratios], told: Container[str]) -> list[str]:
    return [f"too noisy: {one}" for one in noisy if one.then.variant not in told]


def _compare_kernels(result: Comparison, kernels: Sequence[ExpectedKernel], found: Found) -> None:
    """Kernels, of the variants and architectures that a report was read of."""
    read = {(variant, architecture) for variant, architecture, _ in found.kernels}
    told = [one for one in kernels if (one.variant, one.architecture) in read]
    missing = dict.fromkeys(f"{one.variant} for {one.architecture}" for one in kernels if one not in told)
    result.unknown += [f"no kernels of {name} were read: {_why(found, 'resources')}" for name in missing]
    result.differs += [text for one in told for text in _kernel(one, found)]
    _count(result, told, "kernel")


def _kernel(one: ExpectedKernel, found: Found) -> Iterator[str]:
    now = found.kernels.get((one.variant, one.architecture, one.symbol))
    if now is None:
        yield f"{one.symbol} of {one.variant} is not in the report of the compiler"
        return
    for name in ("registers", "spill_bytes", "shared_bytes"):
        then, here = getattr(one, name), getattr(now, name)
        if then != here:
            yield f"{name.replace('_', ' ')} of {one.symbol} are {here} (recorded: {then})"
