"""Is what a recipe found what its session found?"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from loop.replay.expectations import (
    CheckKey,
    Expected,
    ExpectedBuild,
    ExpectedCheck,
    ExpectedKernel,
    ExpectedMachine,
    ExpectedSpeed,
    KernelKey,
)

Kind = TypeVar("Kind", bound=Expected)
VAGUE = 4.0
"""An interval whose ends differ by this factor agrees with anything."""
FIELDS = ("processor", "cores", "gpus", "driver", "torch")
"""What makes a machine another one."""


@dataclass(frozen=True)
class ReplayResult:
    """What the commands of a recipe found."""

    machine: ExpectedMachine
    builds: Mapping[str, Mapping[str, str]]
    """Variant to its build ids, each with its compiler."""
    checks: Mapping[CheckKey, ExpectedCheck]
    speeds: Mapping[tuple[str, str], ExpectedSpeed]
    kernels: Mapping[KernelKey, ExpectedKernel]
    same_code: Callable[[str], bool | None]
    """Whether the recipe's own line made the code that loop's build of an id holds; None where one is missing."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """What the steps that failed said, by name."""

    def why(self, *steps: str) -> str:
        """What the first of these steps that failed said."""
        return next((self.failures[name] for name in steps if name in self.failures), "no step says why")


@dataclass
class ReplayComparison:
    """What differs, and what cannot be compared here."""

    compared: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def count(self, every: Sequence[object], what: str, note: str = "") -> None:
        """Say how many of something were compared."""
        if every:
            self.compared.append(f"{len(every)} {what}{'s' if len(every) > 1 else ''}{note}")


def compare(expected: Sequence[Expected], rerun: ReplayResult) -> ReplayComparison:
    """Every expectation against what was found."""
    result = ReplayComparison()
    elsewhere = "".join(_elsewhere(machine, rerun.machine) for machine in _of(expected, ExpectedMachine))
    builds = _of(expected, ExpectedBuild)
    others = {build.variant for build in builds if _otherwise_built(build, rerun)}
    unbuilt = {build.variant for build in builds if build.variant not in rerun.builds}
    checks = _of(expected, ExpectedCheck)
    checks = [
        check for check in checks if check.variant not in unbuilt or check.key in rerun.checks
    ]  # The others are said.
    result.differs += _checks(checks, rerun)
    result.count(checks, "check")
    _compare_builds(result, builds, rerun, elsewhere)
    speeds = [speed for speed in _of(expected, ExpectedSpeed) if speed.variant not in others]
    _compare_speeds(result, speeds, rerun, elsewhere)
    kernels = [kernel for kernel in _of(expected, ExpectedKernel) if kernel.variant not in others]
    _compare_kernels(result, kernels, rerun)
    if not (result.compared or result.differs or result.unknown):
        result.unknown.append("the session found nothing that can be found again")
    return result


def _of(expected: Sequence[Expected], kind: type[Kind]) -> list[Kind]:
    return [expectation for expectation in expected if isinstance(expectation, kind)]


def _elsewhere(then: ExpectedMachine, now: ExpectedMachine) -> str:
    """In what this machine is another; empty for the same."""
    parts = []
    for name in FIELDS:
        values = (getattr(now, name), getattr(then, name))
        if values[0] != values[1]:
            new, old = (", ".join(v) or "none" if isinstance(v, tuple) else str(v) for v in values)
            parts.append(f"{name} {new} (recorded: {old})")
    return "; ".join(parts)


def _otherwise_built(build: ExpectedBuild, rerun: ReplayResult) -> str:
    """That a library's compiler was not taken here, or none; empty where it was."""
    here = rerun.builds.get(build.variant, {})
    if not here:
        return f"no build of {build.variant}: {rerun.why('build', 'emulate', 'resources')}"
    if not build.compiler or build.compiler in here.values():
        return ""
    other = f"{build.variant} was compiled by {build.compiler}, here by {', '.join(dict.fromkeys(here.values()))}"
    failed = rerun.failures.get("build") or rerun.failures.get("resources")
    return f"{other}: {failed}" if failed else other


def _checks(checks: Sequence[ExpectedCheck], rerun: ReplayResult) -> Iterator[str]:
    """What came out otherwise: a line for each variant and way of differing."""
    alike: dict[tuple[str, str, str], list[tuple[ExpectedCheck, ExpectedCheck | None]]] = {}
    for then in checks:
        now = rerun.checks.get(then.key)
        less_exact = now and then.at_most is not None and now.error is not None and now.error > then.at_most
        if now is None or now.status != then.status or less_exact:
            alike.setdefault((then.variant, then.status, now.status if now else ""), []).append((then, now))
    for (variant, was, status), pairs in alike.items():
        of = sum(check.variant == variant and check.status == was for check in checks)
        what = "less exact" if status == was else status or "not checked"
        yield f"{variant} is {what} on {len(pairs)} of {of} that were {was}, {_worst(pairs)}"


def _worst(pairs: Sequence[tuple[ExpectedCheck, ExpectedCheck | None]]) -> str:
    """The check with the largest error, with the recorded one."""
    then, now = max(pairs, key=lambda pair: (pair[1].error or 0) if pair[1] else 0)
    place = then.workload if then.inputs == "contiguous" else f"{then.workload} with {then.inputs} inputs"
    if now is None or now.error is None or then.error is None:
        return place
    most = f", at most {then.at_most:.2g}" if then.at_most is not None else ""
    return f"largest error {now.error:.2g} on {place} (recorded: {then.error:.2g}{most})"


def _compare_builds(
    result: ReplayComparison, builds: Sequence[ExpectedBuild], rerun: ReplayResult, elsewhere: str
) -> None:
    """Build ids, and the code that the recipe's lines made, where the same compiler was taken."""
    untold = [_untold(build, rerun, elsewhere) for build in builds]
    alike = [build for build, why in zip(builds, untold, strict=True) if not why]
    result.unknown += dict.fromkeys(filter(None, untold))
    for build in alike:
        here, name = rerun.builds.get(build.variant, {}), build.variant
        if build.build_id not in here:
            known = f"(recorded: {build.build_id}): other files, flags or environment"
            result.differs.append(f"build of {name} is {', '.join(here) or 'nothing'} {known}")
        elif build.compiled and rerun.same_code(build.build_id) is False:
            result.differs.append(f"the recipe's line that compiles {name} makes other code than loop does")
    result.count(alike, "build")


def _untold(build: ExpectedBuild, rerun: ReplayResult, elsewhere: str) -> str:
    """Why a build cannot be compared here; empty where it can."""
    if otherwise := _otherwise_built(build, rerun):
        return otherwise
    if build.build_id not in rerun.builds[build.variant]:
        return f"build of {build.variant} is of another machine: {elsewhere}" if elsewhere else ""
    unread = build.compiled and rerun.same_code(build.build_id) is None
    return f"code of {build.variant} cannot be read, or the recipe's line made none" if unread else ""


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
        new, old = (f"{s.ratio:.3g}, {s.interval[0]:.3g} to {s.interval[1]:.3g}" for s in (now, then))
        recorded = f"recorded: {old}; within {then.within[0]:.3g} to {then.within[1]:.3g}"
        return f"ratio of {then.variant} on {then.workload} is {new} ({recorded})"


def _compare_speeds(
    result: ReplayComparison, speeds: Sequence[ExpectedSpeed], rerun: ReplayResult, elsewhere: str
) -> None:
    """Speeds, on the same machine; those of a variant that are all too noisy cannot be told."""
    if speeds and elsewhere:
        result.unknown.append(f"speeds are of another machine: {elsewhere}")
        return
    pairs = [Ratios(then, now) for then in speeds if (now := rerun.speeds.get((then.variant, then.workload)))]
    if len(pairs) < len(speeds):
        why = rerun.failures.get("measure") or rerun.failures.get("verify") or "nothing was measured"
        result.unknown.append(f"{len(speeds) - len(pairs)} of {len(speeds)} speeds are missing: {why}")
    result.differs += [str(pair) for pair in pairs if not pair.meet]
    noisy = [pair for pair in pairs if pair.vague]
    precise = {pair.then.variant for pair in pairs if not pair.vague}
    result.unknown += [f"too noisy: {pair}" for pair in noisy if pair.then.variant not in precise]
    result.count(speeds, "speed", f" ({len(noisy)} too noisy to tell)" if noisy else "")


def _compare_kernels(result: ReplayComparison, kernels: Sequence[ExpectedKernel], rerun: ReplayResult) -> None:
    """Kernels, of the variants and architectures that a report was read of."""
    read: Container[tuple[str, str]] = {(variant, gpu) for variant, gpu, _ in rerun.kernels}
    comparable = [kernel for kernel in kernels if (kernel.variant, kernel.architecture) in read]
    missing = dict.fromkeys(f"{k.variant} for {k.architecture}" for k in kernels if k not in comparable)
    result.unknown += [f"no kernels of {name} were read: {rerun.why('resources')}" for name in missing]
    for then in comparable:
        now = rerun.kernels.get((then.variant, then.architecture, then.symbol))
        if now is None:
            result.differs.append(f"{then.symbol} of {then.variant} is not in the report of the compiler")
        for name in ("registers", "spill_bytes", "shared_bytes") if now else ():
            was, here = getattr(then, name), getattr(now, name)
            if was != here:
                result.differs.append(f"{name.replace('_', ' ')} of {then.symbol} are {here} (recorded: {was})")
    result.count(comparable, "kernel")
