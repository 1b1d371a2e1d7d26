"""The judge's program: `python -m loop.workers.judge_program`. No request makes it load a candidate. The first
one imports torch, so a broken torch is reported as a finding."""

import ctypes
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from loop.calls.own_modules import search_folder
from loop.workers.judge_messages import CheckEnvironment, SetTarget
from loop.workers.messages import Request, answer_request, serve

if TYPE_CHECKING:
    from loop.workers.judge import Judge

MALLOC_OPTIONS = {-1: 1 << 28, -2: 1 << 26, -3: 1 << 25}
"""mallopt(3) thresholds: M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD. malloc then keeps freed memory, which
reduces page faults when judging 64 million elements from 1.1 million to 8,400."""


def main() -> None:
    """Answer requests until no more come (see `serve`)."""
    for option, value in MALLOC_OPTIONS.items():
        ctypes.CDLL(None).mallopt(option, value)
    sys.dont_write_bytecode = True  # Write no .pyc files next to the target's own modules.
    judge: Judge

    def answer(request: Request[Any]) -> object:
        nonlocal judge
        if isinstance(request, CheckEnvironment):
            from loop.workers import environment

            return environment.run_environment_check(request)
        if not isinstance(request, SetTarget):
            return judge.reply_to(request)
        from loop.workers.judge import Judge

        search_folder(request.folder)
        judge = Judge(request)
        return None

    serve(partial(answer_request, answer))


if __name__ == "__main__":
    main()
