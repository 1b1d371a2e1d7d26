"""One side's turn: what becomes of it, and what it does to the others, is said with its name."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from loop.bench import kin
from loop.bench.worker import Refusal, Worker, WorkerLost
from loop.errors import LoopError


class Untimed(LoopError):
    """A side that could not be timed: it crashed, hung or was refused."""

    def __init__(self, side: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint, exit_code=1)
        self.side = side
        """Its name."""


@contextmanager
def undisturbed(
    worker: Worker, name: str, neighbours: Mapping[Worker, str], strays: dict[str, str]
) -> Iterator[None]:
    """While it lasts one side runs; its name stands for what was done meanwhile to the others, and to us.

    Raises Untimed when one of them was killed: there is nothing left to compare with.
    """
    mine = kin.own_terms()
    yield
    others = {one: side for one, side in neighbours.items() if one is not worker and one.is_paused}
    for other, side in others.items():
        done = other.kin.meddled()
        if done == kin.KILLED and other.child.code != -signal.SIGKILL:
            continue  # By its own fault: any other signal waits until it goes on.
        if done:
            if done == kin.KILLED:
                message = f"the process of {side} was killed while {name} ran"
                raise Untimed(name, message, f"`loop kernels verify {name.split()[0]}` runs it alone")
            strays.setdefault(name, f"while it ran, the process of {side} was {done}")
        if runs := other.kin.awake():
            strays.setdefault(side, f"{runs} while another side is timed")
    if kin.end_nameless():
        strays.setdefault(name, "a process that it started hides where it comes from")
    if kin.restore(mine):
        strays.setdefault(name, "while it ran, loop's own process was given other cores or another priority")


class blaming:  # noqa: N801 - reads as a word in a with statement
    """Turns the loss of a worker into an error that names the side and the workload."""

    def __init__(self, side: str, what: str) -> None:
        self.side, self.what = side, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, WorkerLost | Refusal):
            message = f"{self.side} could not be timed on {self.what}: {error}"
            hint = f"`loop kernels verify {self.side.split()[0]}` runs it alone"
            raise Untimed(self.side, message, hint) from error
