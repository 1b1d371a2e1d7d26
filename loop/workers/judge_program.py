"""The judge's program: `python -m loop.workers.judge_program REPLIES`.

No request asks it to load a candidate.
Torch is imported with the first request, so that a torch that cannot be imported is a finding.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loop.base.processes import keep_freed_memory
from loop.calls.own_modules import search
from loop.workers import judge_messages
from loop.workers.messages import Done, Request, answer, serve

if TYPE_CHECKING:
    from loop.workers.judge import Judge


def main(arguments: Sequence[str]) -> None:
    """Answer until the parent is gone."""
    keep_freed_memory()
    sys.dont_write_bytecode = True  # Nothing is written beside what judges.
    judge: Judge

    def reply(request: Request[Any]) -> object:
        """Check the environment, become the judge of a target, or ask it."""
        nonlocal judge
        if isinstance(request, judge_messages.Examine):
            from loop.workers import environment

            return environment.check(request)
        if isinstance(request, judge_messages.Begin):
            from loop.workers.judge import Judge

            search(request.folder)
            judge = Judge(request)
            return Done()
        return judge.answer(request)

    serve(dict.fromkeys(judge_messages.ToJudge.__subclasses__(), reply), int(arguments[0]), answer)


if __name__ == "__main__":
    main(sys.argv[1:])
