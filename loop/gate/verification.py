"""Turn the checks of a verification, on the device or emulated, into its step's output."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from loop.base.errors import WorkFailed
from loop.builds.build import BuildFailed
from loop.gate.model import ShareOutput
from loop.gate.verify import MOST_HUNG, merge_checks
from loop.model.measurement import Check, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.verdict import Against, NoSpeedVerdict
from loop.model.workloads import explain_unsupported
from loop.steps.context import Context
from loop.workers.bench import UNJUDGED_HINT, Side

VERBS = {"refused": "refuses a call", "crashed": "crashes", "hung": "hangs"}
"""Status of the first failed check to the verb of the message; any other status: "is incorrect"."""


def verification_output(
    context: Context,
    sides: Sequence[VariantChecks],
    control: VariantChecks,
    selected: Sequence[str],
    *,
    failures: Sequence[BuildFailed],
    not_exercised: Sequence[str],
    untaken: Mapping[str, Sequence[str]],
) -> VerifyOutput:
    """The output of a verification, from the checks of all variants and of the control: the
    baseline, which has to pass the same checks, or no verdict counts. `selected`: names of all
    selected variants; `failures`: those that do not compile; `not_exercised`: sentences on what was
    not exercised; `untaken`: variant to sentences on the workloads that it does not take."""
    is_trusted = bool(control.checks) and not control.first_failure
    right_variants = tuple(checks.variant for checks in sides if checks.is_right and is_trusted)
    unjudged_by_workload: dict[str, str] = {}
    for check in (check for checks in (*sides, control) for check in checks.checks):
        if check.status == "not judged":
            unjudged_by_workload[check.workload.name] = f"not judged: {check.message}"
    unjudged, left_out = list(unjudged_by_workload.values()), list(not_exercised)
    for variant, texts in untaken.items():
        left_out += [f"{variant} on {text}" for text in texts]
    declined, tallies, unchecked = list[str](), list[str](), list[str]()
    for checks in sides:
        unsupported = [check for check in checks.checks if check.status == "unsupported"]
        layouts = dict.fromkeys(check.inputs for check in unsupported)
        layouts.pop("contiguous", None)
        if layouts:
            declined.append(f"{checks.variant} on {', '.join(layouts)} inputs: not supported")
        is_all_right = checks.count("right") == len(checks.checks)
        tally = f"right in {len(checks.checks)} checks" if is_all_right else checks.tally
        tallies.append(f"{checks.variant} {tally}")
        if not checks.count("right"):
            unchecked.append(checks.variant)
    message, hint = _describe_failure(context, sides, control, failures)
    if not message and unchecked:
        reasons = [*untaken.get(unchecked[0], ()), *unjudged, *left_out, "there is no workload"]
        message = f"nothing was checked of {unchecked[0]}: {reasons[0]}"
        types_hint = f"`{context.command('kernels', 'list')}` shows the types of each"
        hint = f"{types_hint}: say dtype=... in --workloads, or name another set"
    verdict_by_place: dict[tuple[str, str], NoSpeedVerdict] = {}
    """Variant and workload to the verdict of the first failed check there; tampering is taken before others."""
    for checks in sides:
        failed_checks = [check for check in checks.checks if not check.passed]
        for check in sorted(failed_checks, key=lambda check: check.status != "tampered"):
            place = checks.variant, check.workload.name
            verdict_by_place.setdefault(place, failure_verdict(checks.variant, check, "baseline", check.message))
    return VerifyOutput(
        ok=len(right_variants) == len(selected) and is_trusted,
        message=message or ", ".join(tallies) or "no variant runs on this device",
        hint=hint,
        verdicts=tuple(verdict_by_place.values()) if is_trusted else (),
        not_exercised=(*unjudged, *left_out, *declined),
        variants=tuple(sides),
        control=control,
        seed=context.task.seed,
        right=right_variants,
        wrong=tuple(checks.variant for checks in sides if checks.first_failure),
    )


def failure_verdict(variant: str, check: Check, against: Against, reason: str) -> NoSpeedVerdict:
    """The verdict on a variant by a failed check: `invalid` if it tampered with the judge, else `incorrect`."""
    word: Literal["invalid", "incorrect"] = "invalid" if check.status == "tampered" else "incorrect"
    place = {"variant": variant, "workload": check.workload.name, "against": against}
    return NoSpeedVerdict(**place, verdict=word, cause=check.cause, reason=reason)


def _describe_failure(
    context: Context, sides: Sequence[VariantChecks], control: VariantChecks, failures: Sequence[BuildFailed]
) -> tuple[str, str | None]:
    """A message on what failed (empty without a failure), and a hint on what to do next."""
    failed_names = [checks.variant for checks in sides if checks.first_failure]
    first_failed = next((checks for checks in sides if checks.first_failure), None)
    failure = first_failed.first_failure if first_failed else None
    if control.first_failure:
        doubt = "baseline, reference or tolerance is not to be trusted there"
        hint = "look at `reference`, `plain`, `baseline` and `tolerance` of target.yaml before any variant"
        if control.first_failure.status in VERBS:
            doubt = "the baseline computes nothing, so that nothing can be held against it"
            hint = "`loop doctor` looks at torch and the device; `baseline` of target.yaml names what is called"
        message = f"the control failed: {doubt}: {control.first_failure.message}"
        message += f"; {failed_names[0]} as well: {failure.message}" if failure else ""
        return message, hint
    if first_failed and failure:
        message = f"{failed_names[0]} {VERBS.get(failure.status, 'is incorrect')}: {failure.message}"
        message += f" ({first_failed.tally})" if len(first_failed.checks) > 1 else ""
        if len(failed_names) > 1:
            message += f"; so {'is' if len(failed_names) == 2 else 'are'} {', '.join(failed_names[1:])}"
        command = context.command("kernels", "verify", failed_names[0])
        return message, f"mend {failed_names[0]}, then `{command}`"
    return (f"no build: {failures[0].message}", failures[0].hint) if failures else ("", None)


def merge_shares(
    shares: Sequence[ShareOutput], workloads: Sequence[Workload]
) -> tuple[tuple[VariantChecks, ...], VariantChecks]:
    """Merge the checks of several jobs (shares of the workloads): those of each variant, and those of the control.
    The order is that of a single job. Raises WorkFailed where no share could judge anything."""
    merged: dict[str, VariantChecks] = {}
    for parts in zip(*(share.sides for share in shares), strict=True):
        side = merge_checks(parts, workloads)
        if side.variant in merged:  # The same variant with another number of threads.
            earlier = merged[side.variant]
            side = earlier.model_copy(update={"checks": (*earlier.checks, *side.checks)})
        merged[side.variant] = side
    checks = [check for side in merged.values() for check in side.checks]
    if len(shares) > 1 and checks and all(check.status == "not judged" for check in checks):
        raise WorkFailed(checks[0].message, hint=UNJUDGED_HINT)
    return tuple(merged.values()), merge_checks([share.control for share in shares], workloads)


def explain_early_end(checks: VariantChecks) -> Iterator[str]:
    """One line if a variant's checks ended early because too many calls hung; else none."""
    hung = checks.count("hung")
    if hung >= MOST_HUNG:
        yield f"{checks.variant} on the workloads after its call number {hung} that hung"


def describe_untaken_workloads(side: Side, workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Up to two sentences on the workloads that a side does not take: by element type, and by its `takes`."""

    def subject_of(names: Collection[str]) -> str:
        return f"{len(names)} workloads" if len(names) > 1 else next(iter(names))

    dtype_by_name, reason_by_name = dict[str, str](), dict[str, str]()
    for workload in workloads:
        if workload.dtype not in side.dtypes:
            dtype_by_name[workload.name] = workload.dtype
        elif reason := explain_unsupported(side, workload):
            reason_by_name[workload.name] = reason
    texts = []
    if dtype_by_name:
        dtypes = ", ".join(dict.fromkeys(dtype_by_name.values()))
        side_dtypes = ", ".join(side.dtypes)
        texts.append(f"{subject_of(dtype_by_name)} of type {dtypes}: it takes {side_dtypes}")
    if reason_by_name:
        reasons = ", ".join(dict.fromkeys(reason_by_name.values()))
        subject = subject_of(reason_by_name)
        texts.append(f"{subject}: not supported, {reasons} (`takes: {side.takes}`)")
    return tuple(texts)
