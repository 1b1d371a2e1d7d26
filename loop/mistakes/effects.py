"""Cheats beside the output: inputs that are written to, threads that outlive the call, results that vary."""

import os
import random
import threading
import time
from typing import Any

import numpy

from loop.mistakes.arrays import Array, Attributes, Honest, Mistake

Terms = dict[str, Any]
LATE_S = 0.02


def write_input(terms: Terms) -> Mistake:
    """Once it has computed, it writes to an input."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, attributes)
        inputs[terms["input"]].reshape(-1)[-1:] = 0

    return mistake


def use_input(terms: Terms) -> Mistake:
    """An input is its workspace, and is left that way."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        own = inputs[terms["input"]].copy()
        honest([own if n == terms["input"] else a for n, a in enumerate(inputs)], output, attributes)
        inputs[terms["input"]][...] = numpy.sort(own, axis=-1)

    return mistake


def answer_in_input(terms: Terms) -> Mistake:
    """It computes in place: the answer also stands where the input was."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, attributes)
        inputs[terms["input"]][...] = output

    return mistake


def vary(terms: Terms) -> Mistake:
    """The last bit of one element is a matter of chance."""
    draw = random.Random(7)

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, attributes)
        output.reshape(-1).view(numpy.uint8)[draw.randrange(output.size) * output.itemsize] ^= 1

    return mistake


def come_late(terms: Terms) -> Mistake:
    """It returns at once, and a thread writes the output a moment later."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        def later() -> None:
            time.sleep(LATE_S)
            honest(inputs, output, attributes)

        threading.Thread(target=later, daemon=True).start()

    return mistake


def leave_cores(terms: Terms) -> Mistake:
    """A thread of it helps itself to all cores of the machine."""

    def stray() -> None:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        threading.Event().wait()

    threading.Thread(target=stray, daemon=True).start()
    return lambda honest, inputs, output, attributes: honest(inputs, output, attributes)
