"""The calls of one check: the same values each time, and other bytes around the tensors.

A right variant gives the same output whatever stands outside of its tensors, and leaves that as it was.
"""

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from time import perf_counter

from loop.calls import guards
from loop.calls.faults import Watch
from loop.calls.guards import FIELDS, KINDS, MIXED, Guard
from loop.calls.prepared import Prepared
from loop.calls.tensors import DTYPES

LEAST = 2
"""Calls that are made however long they take: of a slow one that was checked on other values before, one."""
SLOW_S = 0.1
"""Once so much time is over, other kinds of bytes are not tried: a slow call meets one drawn for its check."""
HURRIED_S = 3e-3
"""The same for a check in a hurry, which ends then."""
REPEAT_S, MOST = 4e-3, 3
"""How long a quick call is repeated: a race may show once in a hundred times; so many outputs are enough."""
CONFIRMING = 6
"""Calls that have to agree, half of them with either surroundings, before a difference is a read outside."""
NAMING_S = 5.0
"""Seconds that may be spent on telling which tensor it is."""

GUESS = "crashed with other bytes around its tensors than before: it probably reads outside of them"

Guards = tuple[Guard, ...]
View = Callable[[bytes], bytes]
"""What of an output is compared."""


class CheckFindings:
    """What the calls of one check came to."""

    def __init__(self) -> None:
        self.outputs: dict[str, bytes] = {}
        """Outputs that differ, by digest."""
        self.turns: dict[str, tuple[int, int]] = {}
        """By digest: the first and the last call that gave an output."""
        self.changed: set[str] = set()
        """Inputs that were written to."""
        self.writes: list[str] = []
        """Writes outside of tensors, a sentence each."""
        self.reads = ""
        """The tensors outside which something is read on which the output depends."""
        self.enclosed: dict[str, bytes] = {}
        """Outputs of calls that could reach nothing beside their tensors. They may differ bit by bit: the tensors
        are elsewhere."""
        self.unwritten = False
        """Whether the output depends on what stood in its memory before."""


class Check:
    """Calls of one prepared call."""

    def __init__(
        self,
        prepared: Prepared,
        draw: random.Random,
        *,
        hurried: bool = False,
        again: bool = False,
        jumbled: bool = False,
    ) -> None:
        """`again`: one call is enough where it is slow: it was checked on other values, or is a control.

        `jumbled`: after the first call comes one on other values, whose output is not looked at.
        """
        self.jumbled = jumbled and not prepared.timed_apart
        self.slow_s = HURRIED_S if hurried else SLOW_S
        self.hurried, self.again, self.least = hurried, again, 1 if again else LEAST
        self.prepared, self.guarded, self.draw, self.found = prepared, prepared.guarded, draw, CheckFindings()
        self.begun, self.made, self.quickest_s = perf_counter(), 0, math.inf
        self.first: dict[str, Guards] = {}
        """By digest: what stood around the tensors when an output came first."""
        self.watch = Watch(prepared.guarded.places)
        self.survived: set[str] = set()
        """Kinds of bytes around the tensors with which a call came back."""

    @property
    def seconds(self) -> float:
        """Since the first call."""
        return perf_counter() - self.begun

    @property
    def slow(self) -> bool:
        """Whether only the calls are made without which nothing is known."""
        return self.seconds > self.slow_s

    @property
    def spoilt(self) -> bool:
        """Whether memory was written that is not the output's."""
        return bool(self.found.changed or self.found.writes)

    def run(self) -> CheckFindings:
        """Make the calls."""
        with self.watch:
            self._repeat()
            if not self.spoilt:
                self._look_closer()
        return self.found

    @property
    def _enough(self) -> bool:
        """Whether no call is made that could be left out."""
        return self.slow or self.prepared.timed_apart

    def _repeat(self) -> None:
        """The same values with every kind of bytes around the tensors, then for a while with any.

        Where one call has to do, bytes stand there that show in the output of who reads them.
        """
        others = self.draw.sample(KINDS[1:], len(KINDS) - 1)
        for kind in (*others, KINDS[0]) if self.again else (KINDS[0], *others):
            if self.made >= self.least and (self._enough or self.spoilt):
                break
            self._keep(self._all(kind))
            if self.jumbled and self.made == 1:
                self.prepared.jumble(self.draw)
                self.prepared.bind()()
        end = perf_counter() + REPEAT_S
        while perf_counter() < end and len(self.first) < MOST and not self._enough:
            self._keep(self._all(self.draw.choice(KINDS)))

    def _look_closer(self) -> None:
        """What the output follows; and calls in which an access outside of a tensor faults."""
        if len(self.first) > 1 and self.guarded.names:
            self.found.reads = self._reads()
        elif self.guarded.prefills and not self.slow:
            self.found.unwritten = self._depends_on_output()
        if not self.found.reads and not (self.again and self.slow):
            self._enclosed()
            self.found.writes = self.guarded.own_strays()

    def _all(self, kind: str) -> Guards:
        return tuple(guards.draw(kind) for _ in self.guarded.names)

    def _keep(self, around: Guards) -> None:
        output = self._make(around)
        known = next((one for one, kept in self.found.outputs.items() if kept == output), "")
        digest = known or hashlib.sha256(output).hexdigest()
        self.found.outputs.setdefault(digest, output)
        self.first.setdefault(digest, around)
        self._count(digest)

    def _count(self, digest: str) -> None:
        """Note that the last call gave this output."""
        first, _ = self.found.turns.get(digest, (self.made, 0))
        self.found.turns[digest] = first, self.made

    def _enclosed(self) -> None:
        """Calls in which an access outside of a tensor faults: it ends the process, and is told.

        The last one leaves the tensors where they were, so that who remembers an address meets it again.
        """
        for at_end in (False, True):
            if ((at_end and not self.hurried) or not self.slow) and self.guarded.enclose(at_end=at_end):
                self.prepared.poison()
                self.prepared.bind()()
                output = self.prepared.output()
                digest = hashlib.sha256(output).hexdigest()
                self.found.enclosed.setdefault(digest, output)
                self.made += 1
                self._count(digest)
                self.guarded.release()

    def _make(self, around: Guards, prefill: Guard | None = None) -> bytes:
        """The output of one call with these bytes around its tensors."""
        self.made += 1
        self.guarded.surround(around)
        self.prepared.poison(prefill)
        kinds = {guard.kind for guard in around}
        self.watch.guess = GUESS if self.survived and not kinds <= self.survived else ""
        run, begin = self.prepared.bind(), perf_counter()
        run()
        self.quickest_s = min(self.quickest_s, perf_counter() - begin)
        self.survived |= kinds
        output = self.prepared.output()
        self.found.writes = self.found.writes or self.guarded.strays()
        self.found.changed |= set(self.prepared.changed())
        return output

    def _reads(self) -> str:
        """The tensors outside which it reads; empty when the output does not follow what stands there.

        Where outputs never repeat themselves, only what is infinite or NaN in them is looked at.
        """
        dtype = self.prepared.call.output.dtype
        if dtype not in FIELDS:  # Of several outputs, or integers, bits tell nothing of their kind.
            return self._read_as((bytes,))
        return self._read_as((bytes, lambda output: not_finite(output, dtype)))

    def _read_as(self, views: Sequence[View]) -> str:
        """The tensors outside which it reads, as any of these views of an output tells."""
        for seen in views:
            known = {self.first[digest]: seen(output) for digest, output in self.found.outputs.items()}
            one = next(iter(known))
            other = next((around for around, output in known.items() if output != known[one]), None)
            if other is not None and self._follows(one, other, known, seen):
                return self._names(one, other, known[one], seen)
        return ""

    def _follows(self, one: Guards, other: Guards, known: dict[Guards, bytes], seen: View) -> bool:
        """Whether the same surroundings give the same output again, in an order that no counter of calls has."""
        order = [one, other] * (CONFIRMING // 2)
        self.draw.shuffle(order)
        for number, around in enumerate([other, one, one, *order]):
            if seen(self._make(around)) != known[around]:
                return False
            if number >= LEAST and self.slow:
                break
        return True

    def _names(self, one: Guards, other: Guards, expected: bytes, seen: View) -> str:
        """Which tensors' surroundings, changed alone, change the output."""
        tensors = self.guarded.names
        if self.seconds / self.made * len(tensors) > NAMING_S:
            return "its tensors"
        changed = [(*one[:n], other[n], *one[n + 1 :]) for n in range(len(tensors))]
        names = [
            name for name, around in zip(tensors, changed, strict=True) if seen(self._make(around)) != expected
        ]
        return " and ".join(names) or "its tensors"

    def _depends_on_output(self) -> bool:
        """Whether another output comes where something else stood in its memory before."""
        ((digest, around),) = self.first.items()
        return self._make(around, guards.draw(MIXED)) != self.found.outputs[digest]


def not_finite(output: bytes, dtype: str) -> bytes:
    """Which elements are infinite or NaN, a bit each."""
    import numpy

    (exponent, mantissa), item = FIELDS[dtype], DTYPES[dtype][1]
    mask = ((1 << exponent) - 1) << mantissa
    bits = numpy.frombuffer(output, f"<u{item}")
    return numpy.packbits(bits & numpy.array(mask, bits.dtype) == mask).tobytes()
