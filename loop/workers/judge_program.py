"""The judge's program: `python -m loop.workers.judge_program REPLIES`.

Its memory and descriptors are closed to those that it judges. No request asks it to load a candidate.
Torch is imported with the first request, so that a torch that cannot be imported is a finding.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loop.base.linux import keep_freed_memory
from loop.calls.own_modules import OWN
from loop.workers.judge_messages import (
    Begin,
    Compare,
    Discard,
    Examine,
    Examined,
    Expect,
    GiveOutput,
    Look,
    Relate,
)
from loop.workers.wire import PR_SET_DUMPABLE, Done, Request, answer, prctl, serve

if TYPE_CHECKING:
    from loop.workers.judge import Judge


class JudgeProgram:
    """Holds a judge, once it knows its target."""

    def __init__(self) -> None:
        self.judge: Judge | None = None

    def begin(self, request: Begin) -> Done:
        """Become the judge of a target."""
        from loop.workers.judge import start

        OWN.add(request.folder)
        self.judge = start(request)
        return Done()

    def ask(self, request: Request[Any]) -> object:
        """The judge's reply to a request about its target."""
        assert self.judge is not None
        return self.judge.answer(request)

    def examine(self, request: Examine) -> Examined:
        """One check of the environment."""
        from loop.workers.environment import CHECKS

        return CHECKS[request.check](request)


def main(arguments: Sequence[str]) -> None:
    """Answer until the parent is gone."""
    prctl(PR_SET_DUMPABLE, 0)
    keep_freed_memory()
    sys.dont_write_bytecode = True  # Nothing is written beside what judges.
    program = JudgeProgram()
    judged = dict.fromkeys((Expect, Compare, Discard, Look, Relate, GiveOutput), program.ask)
    serve({Examine: program.examine, Begin: program.begin, **judged}, int(arguments[0]), answer)


if __name__ == "__main__":
    main(sys.argv[1:])
