"""The judge's program: `python -m loop.workers.judge_program REPLIES`.

No request asks it to load a candidate.
Torch is imported with the first request, so that a torch that cannot be imported is a finding.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loop.base.processes import keep_freed_memory
from loop.calls.own_modules import search_folder
from loop.workers import judge_messages
from loop.workers.messages import Request, answer, serve

if TYPE_CHECKING:
    from loop.workers.judge import Judge


def main(arguments: Sequence[str]) -> None:
    """Answer until the parent is gone."""
    keep_freed_memory()
    sys.dont_write_bytecode = True  # Nothing is written beside what judges.
    judge: Judge

    def begin(request: judge_messages.Begin) -> None:
        nonlocal judge
        from loop.workers.judge import Judge

        search_folder(request.folder)
        judge = Judge(request)

    def examine(request: judge_messages.Examine) -> object:
        from loop.workers import environment

        return environment.check(request)

    def ask(request: Request[Any]) -> object:
        return judge.answer(request)

    asked = dict.fromkeys(judge_messages.OF_A_TARGET, ask)
    serve({judge_messages.Begin: begin, judge_messages.Examine: examine, **asked}, int(arguments[0]), answer)


if __name__ == "__main__":
    main(sys.argv[1:])
