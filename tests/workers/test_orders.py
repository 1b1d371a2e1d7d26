"""Orders to a worker: what it did while nobody looked is done."""

from types import SimpleNamespace
from typing import Any

import pytest

from loop.base.processes import finish
from loop.calls.arena import DONE, LEAVE, ORDER
from loop.workers.judge_process import Orders
from loop.workers.program import WorkerLost


class Busy:
    """A worker that carries out the order just after the judge has looked at its memory, and answers."""

    def __init__(self, *, does: bool) -> None:
        self.does, self.bell, self.cores = does, None, ""
        self.arena = SimpleNamespace(words=[0] * 64)
        self.child = SimpleNamespace(code=None)

    @property
    def has_answered(self) -> bool:
        """Whether a reply is there: by then the memory says so, too."""
        if self.does:
            self.arena.words[DONE] = self.arena.words[ORDER]
        return True

    def receive(self, limit_s: float, note: str) -> Any:
        """The reply."""
        yield from ()
        return "left"


@pytest.mark.parametrize("does", [True, False])
def test_a_worker_that_left_while_the_judge_had_no_core_is_not_lost(*, does: bool) -> None:
    """Its reply comes after its last order; a reply without the order is a loss."""
    worker: Any = Busy(does=does)
    orders = Orders(worker, 5.0, "waiting")
    if does:
        assert 0 <= finish(orders.give(LEAVE)) < 5
        return
    with pytest.raises(WorkerLost, match="left its orders undone"):
        finish(orders.give(LEAVE))
