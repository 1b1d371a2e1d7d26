"""What a wrong kernel could do unnoticed: inputs that never vary, arguments that the reference does not read."""

from collections.abc import Generator, Iterable, Iterator, Sequence

from loop.base.processes import Tick
from loop.model.target import Target, Workload
from loop.model.workloads import expand
from loop.workers.bench import Bench
from loop.workers.judge_messages import Looked

MOST_ASKED, SLOW_S = 4, 0.2
"""Workloads on which the reference is asked what it reads, and seconds that inputs and answer of one may take."""
UNREAD = ("unread", "ignored", "unmoved", "initial")


def blind_spots(bench: Bench, workloads: Sequence[Workload]) -> Generator[Tick, None, tuple[str, ...]]:
    """Sentences on what the values of these workloads cannot show, once all of them were drawn."""
    quick = [workload for workload in workloads if bench.took.get(workload.name, SLOW_S) < SLOW_S]
    looked: list[Looked] = []
    asked = [*_unlike(quick)][: MOST_ASKED - 1]  # What small sizes leave without effect, the largest may show.
    largest = max(quick, key=lambda workload: sum(workload.sizes.values()), default=None)
    asked += [largest] if largest and largest not in asked else []
    for workload in asked or (None,):
        looked.append((yield from bench.look(workload)))
        if not any(getattr(looked[-1], name) for name in UNREAD):
            break
    unread = dict[str, tuple[str, ...]]()
    for name in UNREAD:  # Unread is only what no look found to be read.
        first, *others = (getattr(look, name) for look in looked)
        unread[name] = tuple(name for name in first if all(name in other for other in others))
    sentences = list(_sentences(looked[-1].but(**unread), bench.target))
    if zeros := list(bench.zeros_pass):
        listed = ", ".join(zeros[:3]) + (f" and {len(zeros) - 3} more" if len(zeros) > 3 else "")
        passes = "a kernel that writes zeros would pass"
        sentences.append(f"the right output is zero within what is allowed on {listed}: {passes}")
    if looked[-1].finite:
        sentences.append("no input is NaN or infinite: a kernel that is wrong on these would pass")
    return tuple(sentences)


def _unlike(workloads: Iterable[Workload]) -> Iterator[Workload]:
    """The smallest workload for each kind of values and set of attributes; sizes above one come first."""
    kinds = set[tuple[str, ...]]()
    for workload in sorted(
        workloads, key=lambda workload: (min(workload.sizes.values(), default=2) < 2, sum(workload.sizes.values()))
    ):
        kind = (workload.values, *map(str, workload.attributes.values()))
        if 0 not in workload.sizes.values() and kind not in kinds:
            kinds.add(kind)
            yield workload


def _sentences(looked: Looked, target: Target) -> Iterator[str]:
    never = "a kernel that never reads"
    for names, what, who in (
        (looked.fixed, "{} the same under every seed", f"{never} {{}} would pass"),
        (looked.single, "{} one value everywhere", "a kernel that reads one element of {} would pass"),
        (looked.positive, "{} never negative", "a kernel that is wrong below zero would pass"),
        (looked.unread, "{} not read by the reference on the workloads tried", f"{never} {{}} would pass"),
    ):
        if names:
            plural = len(names) > 1
            verb, them = ("are", "them") if plural else ("is", "it")
            listed = f"input{'s' * plural} {', '.join(names)} {verb}"
            yield f"{what.format(listed)}: {who.format(them)}"
    if looked.unmoved:
        yield f"output {', '.join(looked.unmoved)} is the same whatever the inputs are: a constant would pass"
    if looked.initial:
        yield (
            f"weights {', '.join(looked.initial)} are all 1 or all 0, as the constructor leaves them: "
            "a kernel that ignores them would pass"
        )
    if looked.ignored:
        yield f"attribute {', '.join(looked.ignored)} changes no output: a kernel that ignores it would pass"
    yield from _one_value(target, looked.ignored)


def _one_value(target: Target, ignored: Sequence[str]) -> Iterator[str]:
    """Attributes that no workload changes."""
    every = expand(target, target.workloads, next(iter(target.dtypes.values())))
    values = {name: {str(workload.attributes[name]) for workload in every} for name in target.signature.attributes}
    only = [
        f"{name}={next(iter(some))}" for name, some in values.items() if len(some) == 1 and name not in ignored
    ]
    if only:
        which = "it" if len(only) == 1 else "them"
        yield f"every workload has {', '.join(only)}: a kernel that ignores {which} would pass"
