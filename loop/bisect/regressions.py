"""What was good and is not now: slower than its known good, wrong where it was right, or with more resources."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from loop.base.errors import LoopError
from loop.bisect.candidates import Line, read_line
from loop.bisect.failing import PLACES
from loop.bisect.model import SearchMetric
from loop.gate.emulating import too_much
from loop.gate.kernel import distinct, extra_sets, other_sets, workloads
from loop.model.index import SessionRow
from loop.model.output import VerifyOutput
from loop.model.target import CAbiVariant, Workload
from loop.model.verdict import SpeedVerdict
from loop.model.workloads import operations
from loop.profile.model import ResourcesOutput
from loop.steps.context import Context
from loop.store.judgements import wrong_builds
from loop.timing.model import CompareOutput

ENDS = 3
"""Earlier sessions whose commit is tried as a good end."""


SAID: dict[SearchMetric, str] = {
    "latency": "is slower",
    "correctness": "is wrong",
    "resources": "takes more resources",
}


@dataclass(frozen=True)
class Regression:
    """What the gate says against a variant."""

    variant: str
    metric: SearchMetric
    workloads: tuple[Workload, ...] = ()
    """Where it shows; nothing for resources."""
    emulated: bool = False
    architecture: str = ""
    """The GPU that it was compiled for, where its resources are in question."""

    @property
    def what(self) -> str:
        """`split_k is wrong under the emulator`."""
        return f"{self.variant} {SAID[self.metric]}{' under the emulator' if self.emulated else ''}"


def regressions(context: Context) -> tuple[Regression, ...]:
    """What is wrong, slower or takes more now, by the steps so far; wrong first, for it has no speed."""
    wrong = (*_wrong(context, emulated=False), *_wrong(context, emulated=True))
    return (*wrong, *_slower(context), *_risen(context))


def _wrong(context: Context, *, emulated: bool) -> Iterator[Regression]:
    latest = context.latest("kernel.emulate" if emulated else "kernel.verify")
    checked = VerifyOutput.model_validate(latest, strict=False).variants if latest else ()
    size = partial(operations, context.bench.target)
    for one in checked:
        failed = {check.workload.name: check.workload for check in one.checks if not check.passed}
        if failed:
            places = sorted(failed.values(), key=size)
            yield Regression(one.variant, "correctness", tuple(places[:PLACES]), emulated)


def _slower(context: Context) -> Iterator[Regression]:
    latest = context.latest("kernel.compare")
    verdicts = CompareOutput.model_validate(latest, strict=False).verdicts if latest else ()
    found: dict[str, list[str]] = {}
    for one in verdicts:
        if isinstance(one, SpeedVerdict) and one.against == "known_good" and one.verdict == "slower":
            found.setdefault(one.variant, []).append(one.workload)
    for variant, names in found.items():
        yield Regression(variant, "latency", tuple(w for w in _workloads(context) if w.name in names))


def _risen(context: Context) -> Iterator[Regression]:
    latest = context.latest("kernel.resources")
    if latest:
        output = ResourcesOutput.model_validate(latest, strict=False)
        for variant in dict.fromkeys(one.variant for one in output.risen):
            yield Regression(variant, "resources", architecture=output.device)


def _workloads(context: Context, *, emulated: bool = False) -> list[Workload]:
    """Everything that is verified, by a GPU's types where it is emulated."""
    sets = [*context.task.plan.workloads, *extra_sets(context), *other_sets(context)]
    every = distinct(workloads(context, sets, device="cuda" if emulated else None))
    return [one for one in every if not (emulated and too_much(context.bench.target, one))]


def lines(context: Context, one: Regression) -> tuple[list[Line], str]:
    """Lines of commits from where it was good to the checkout, the shortest first; why there is none."""
    if not isinstance(context.bench.target.variants.get(one.variant), CAbiVariant):
        return [], "commits of compiled variants alone are built; `loop bisect --probe exit -- COMMAND` takes any"
    ends, uncommitted = _good_ends(context, one)
    found: list[Line] = []
    why = "the sources of the sessions that found it good were not committed" if uncommitted and not ends else ""
    for commit in ends:
        try:
            line = read_line(context.task.folder, commit, None)
        except LoopError as error:
            why = why or error.message
            continue
        found += [line] if line.candidates else []
        if len(found) == ENDS:
            break
    return found, why or "no earlier session found it good"


def _good_ends(context: Context, one: Regression) -> tuple[list[str], bool]:
    """Commits at which it was good, or on which a checkout stood that was, the last first; whether one was good.

    What was not committed then may have made it good: a search tries its good end first.
    """
    nvcc = context.task.machine.nvcc
    bad = wrong_builds(context.past.sessions)
    good = [row for row in reversed(context.past.sessions) if was_good(row, one, nvcc)]
    good = [row for row in good if one.metric == "resources" or not row.has_build(one.variant, bad)]
    ends = [row.commit or row.base for row in good]
    known = context.past.known_good.get(one.variant) if one.metric == "latency" else None
    commits = dict.fromkeys(commit for commit in (known.commit if known else None, *ends) if commit)
    return list(commits), bool(good or known)


def was_good(row: SessionRow, one: Regression, nvcc: str | None) -> bool:
    """Whether a session found the variant good, in what is the matter with it now; `nvcc`: today's release."""
    if one.metric == "resources":
        return (one.variant, one.architecture) in row.resources and row.environment.cuda == nvcc
    timed = one.metric == "correctness" or (row.status == "passed" and one.variant not in row.regressed)
    return timed and was_right(row, one.variant, emulated=one.emulated)


def was_right(row: SessionRow, variant: str, *, emulated: bool) -> bool:
    """Whether a session found it right; of an older loop's row, whether it passed as a whole with it."""
    chosen: Sequence[str] = row.emulated if emulated else row.variants
    if variant not in chosen or variant in row.incorrect:
        return False
    return row.status == "passed" if row.right is None else variant in row.right
