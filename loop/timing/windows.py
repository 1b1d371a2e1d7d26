"""Which part of each input a timed call reads, so that none sees the values of the one before."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from loop.calls.call import Call, TensorFile, step_of
from loop.model.dtypes import Device

Windows = list[tuple[int, ...]]
"""Where the windows of each call begin: for each call one offset an input, in elements."""


class Grid:
    """Where windows into each input may begin; of a generator all inputs of a call are of the same draw."""

    def __init__(self, call: Call, device: Device, draw: random.Random) -> None:
        self.call, self.draw = call, draw
        steps = [self._step(tensor, device) for tensor in call.inputs]
        self.places = [range(0, one.room + 1, step) for one, step in zip(call.inputs, steps, strict=True)]
        """Of each input, in elements."""
        self.is_few = bool(call.structure) and device == "cpu"
        """Whether values come in few draws, of a generator's. On a GPU a graph has no memory of them."""
        self._first = draw.randrange(call.draws)
        self._only: int | None = None
        """The draw that is met first, and the only one that all calls get now, at one address; None: any."""

    def _step(self, tensor: TensorFile, device: Device) -> int:
        if self.call.draws > 1:
            return max(1, (tensor.elements + tensor.room) // self.call.draws)
        return step_of(tensor.dtype, device)

    def windows(self, calls: int) -> Windows:
        """Windows for so many calls, drawn anew."""
        if self._only is not None:
            return [self._of_draw(0)] * calls
        if self.call.structure:
            return [self._of_draw(place) for place in self.draw.choices(range(self.call.draws), k=calls)]
        drawn = [self.draw.choices(places, k=calls) for places in self.places]
        return list(zip(*drawn, strict=True)) if drawn else [()] * calls

    def _of_draw(self, number: int) -> tuple[int, ...]:
        return tuple(places[number] if len(places) > number else 0 for places in self.places)

    @contextmanager
    def only(self, number: int) -> Iterator[None]:
        """While it lasts, all calls get one draw of few: the first, or so many after it."""
        self._only = (self._first + number) % self.call.draws if self.is_few else None
        try:
            yield
        finally:
            self._only = None

    def turns(self, window: Sequence[int] | None) -> list[int]:
        """Elements by which inputs are rotated, so that `window` holds the values whose answer is known.

        None: any, from the same distribution, so that nothing tells one from the other. Rotations go by
        elements, windows by steps, so that values seldom come back. Draws go by whole ones, all inputs alike.
        """
        if self.call.structure:
            turn = self._draws_between(window) if self._only is None else self._only
            return list(self._of_draw(turn))
        turns = []
        for n, tensor in enumerate(self.call.inputs):
            size = tensor.elements + tensor.room
            known = tensor.offset if window else self.draw.randrange(tensor.room + 1)
            place = window[n] if window else self.draw.choice(self.places[n])
            turns.append((known - place) % size if size else 0)
        return turns

    def _draws_between(self, window: Sequence[int] | None) -> int:
        """Draws from a window to the one whose answer is known; any number where there is no window."""
        for tensor, places, offset in zip(self.call.inputs, self.places, window or (), strict=False):
            if len(places) > 1:
                return (places.index(tensor.offset) - places.index(offset)) % self.call.draws
        return self.draw.randrange(self.call.draws)
