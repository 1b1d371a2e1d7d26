"""The judge's program: `python -m loop.workers.judge_program REPLY_FD`. No request makes it load a
candidate. The first one imports torch, so a broken torch is reported as a finding."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from loop.base.processes import keep_freed_memory
from loop.calls.own_modules import search_folder
from loop.workers import judge_messages
from loop.workers.messages import Request, answer_request, serve

if TYPE_CHECKING:
    from loop.workers.judge import Judge


def main(arguments: Sequence[str]) -> None:
    """Answer requests until standard input ends. `arguments`: the descriptor for replies."""
    keep_freed_memory()
    sys.dont_write_bytecode = True  # Write no .pyc files next to the target's own modules.
    judge: Judge

    def set_target(request: judge_messages.SetTarget) -> None:
        nonlocal judge
        from loop.workers.judge import Judge

        search_folder(request.folder)
        judge = Judge(request)

    def check_environment(request: judge_messages.CheckEnvironment) -> object:
        from loop.workers import environment

        return environment.run_check(request)

    def reply_about_target(request: Request[Any]) -> object:
        return judge.reply_to(request)

    answers: dict[type[Request[Any]], Callable[[Any], object]] = {
        judge_messages.SetTarget: set_target,
        judge_messages.CheckEnvironment: check_environment,
        **dict.fromkeys(judge_messages.TARGET_REQUESTS, reply_about_target),
    }
    serve(answers, int(arguments[0]), answer_request)


if __name__ == "__main__":
    main(sys.argv[1:])
