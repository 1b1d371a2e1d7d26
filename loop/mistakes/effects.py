"""Cheats beside the output: inputs that are written to, threads that outlive the call, results that vary."""

import os
import random
import threading
import time

import numpy

from loop.mistakes.arrays import Call, unset_last

LATE_S = 0.02
"""A thread writes so long after the call has returned."""


def write_input(call: Call) -> None:
    """Once it has computed, it writes to an input."""
    call.compute()
    unset_last(call.inputs[call.terms["input"]])


def use_input(call: Call) -> None:
    """An input is its workspace, and is left that way."""
    place = call.terms["input"]
    own = call.inputs[place].copy()
    call.compute([own if n == place else array for n, array in enumerate(call.inputs)])
    call.inputs[place][...] = numpy.sort(own, axis=None).reshape(own.shape)


def answer_in_input(call: Call) -> None:
    """It computes in place: the answer also stands where the input was."""
    call.compute()
    call.inputs[call.terms["input"]][...] = call.output


def vary(call: Call) -> None:
    """The last bit of one element is a matter of chance."""
    draw = call.kept.setdefault("draw", random.Random(7))
    call.compute()
    output = call.output
    output.reshape(-1).view(numpy.uint8)[draw.randrange(output.size) * output.itemsize] ^= 1


def come_late(call: Call) -> None:
    """It returns at once, and a thread writes the output a moment later."""

    def later() -> None:
        time.sleep(LATE_S)
        call.compute()

    threading.Thread(target=later, daemon=True).start()


def leave_cores(call: Call) -> None:
    """A thread of it helps itself to all cores of the machine."""

    def stray() -> None:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        threading.Event().wait()

    if not call.number:
        threading.Thread(target=stray, daemon=True).start()
    call.compute()
