"""On which inputs would a mistake show? Asked of the judge, who puts it into the float64 reference."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.model.target import Workload
from loop.model.workloads import VALUES, accepts, entry_of, expand, operations, scaled, single, spelled
from loop.proving.negative_controls import WRONG, Control
from loop.workers.bench import JUDGE_LIMIT_S, Bench, Side
from loop.workers.judge_messages import Tell

SURE = 2.0
"""A mistake that is off by so many times what is allowed has to be found, for an honest variant is off by one."""
TELLS = 4.0
"""Inputs are used to tell a mistake that is off by so much there."""
SCALES = (1e-3, 1e3, 1e-2, 1e2, 1e-4, 1e4, 0.1, 10.0)
STRETCH = 8
"""A dimension is tried so many times as long, and as short."""
LARGEST = 1 << 24
"""Operations of a workload that is tried, at most."""
LARGE = 2
"""Larger workloads of the target's own that are tried."""
OTHER_SEED = 7919


@dataclass(frozen=True)
class Question:
    """A mistake in a variant."""

    bench: Bench
    base: Side
    """The honest variant."""
    control: Control

    def excess(self, workload: Workload) -> Generator[Tick, None, float]:
        """How many times what is allowed the mistake is off on a workload.

        Raises LoopError where the judge has no answer.
        """
        yield from self.bench.expect(workload)
        control, other = self.control, ""
        if control.theme == "cheat" and control.make != "give_input":
            # It gives an answer to other values.
            elsewhere = workload.model_copy(update={"seed": workload.seed + OTHER_SEED})
            yield from self.bench.expect(elsewhere)
            other = self.bench.call(elsewhere, "judge").key
        call = self.bench.call(workload, "judge")
        note = f"whether {workload.name} tells {control.name}"
        mistake = control.mistake(self.bench.target, workload.dtype)
        reply = yield from self.bench.judge(Tell(call, other, mistake), JUDGE_LIMIT_S, note)
        return reply.excess

    @property
    def of_values(self) -> bool:
        """Whether it is found by what the values are: all other mistakes show on any inputs."""
        return self.control.expected == WRONG

    def search(self, known: Sequence[Workload]) -> Generator[Tick, None, Iterator[Workload]]:
        """Inputs that tell it, the nearest to what the target has first."""
        found = []
        for workload in candidates(self.bench, self.base, self.control, known):
            try:
                if (yield from self.excess(workload)) >= TELLS:
                    found.append(workload)
            except LoopError:
                continue  # The reference does not take it, or is not to be trusted there.
            if len(found) == LARGE:
                break
        return iter(found)


def candidates(bench: Bench, base: Side, control: Control, known: Sequence[Workload]) -> Iterator[Workload]:
    """Inputs that the target does not try, each once: its other kinds of values, scales of normals, and sizes."""
    first, names = known[0], {one.name for one in known}
    for workload in (*_valued(bench, first), *_sized(bench, first)):
        fits = 0 < operations(bench.target, workload) <= LARGEST and control.applies(workload)
        if fits and accepts(base, workload) and workload.name not in names:
            names.add(workload.name)
            yield workload


def _valued(bench: Bench, first: Workload) -> Iterator[Workload]:
    kinds = (*bench.target.values, *VALUES, *map(scaled, SCALES))
    yield from (_changed(bench, first, first.sizes, kind) for kind in kinds)


def _sized(bench: Bench, first: Workload) -> Iterator[Workload]:
    target = bench.target
    own = [one for one in expand(target, target.workloads, first.dtype) if one.dtype == first.dtype]
    sizes = [one.sizes for one in sorted(own, key=partial(operations, target))[-LARGE:]]
    sizes += [{**first.sizes, name: size * STRETCH} for name, size in first.sizes.items()]
    sizes += [{**first.sizes, name: max(1, size // STRETCH)} for name, size in first.sizes.items()]
    yield from (_changed(bench, first, some, "normal") for some in sizes)


def _changed(bench: Bench, first: Workload, sizes: dict[str, int], values: str) -> Workload:
    given = {name: value for name, value in first.attributes.items() if value is not None}
    return single(bench.target, {**sizes, **given, "values": values, "dtype": first.dtype}, first.dtype)


def words(bench: Bench, workload: Workload) -> str:
    """The workload as words of `--workloads`."""
    return spelled(entry_of(bench.target.signature, workload))
