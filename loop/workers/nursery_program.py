"""A nursery's program: `python -m loop.workers.nursery_program CONTROL`.

It imports torch, loads nothing of anybody's, and forks a judge or a worker for each order. Their access to its
memory is closed.
"""

import ctypes
import gc
import json
import os
import random
import socket
import sys
import time
from typing import Any

from loop.base.linux import die_with_parent
from loop.workers import judge_program, worker_program
from loop.workers.nursery import numbered

PROGRAMS = {module.__name__: module.main for module in (judge_program, worker_program)}
LONGEST, MOST_HANDLES = 1 << 16, 16
PAGE_BYTES, MOST_PAGES = 4096, 1 << 16
ADOPTED_S = 10.0


def main() -> None:
    """Fork programs until the parent is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    from loop.calls import torch_call  # noqa: F401 - what each worker would import

    gc.collect()
    gc.freeze()
    while True:
        order, handles, _, _ = socket.recv_fds(control, LONGEST, MOST_HANDLES)
        if not order:
            return
        if os.fork() == 0:
            _become(control, json.loads(order), handles)
            return
        for handle in handles:
            os.close(handle)
        os.wait()


def _become(control: socket.socket, order: dict[str, Any], handles: list[int]) -> None:
    """Leave by a second fork, so that the session adopts what is left; then be the program that was ordered."""
    if os.fork():
        os._exit(0)
    try:
        _stand_alone(order, handles)
    except BaseException:
        control.sendall(b"0")
        raise
    control.sendall(str(os.getpid()).encode())
    control.close()
    _move_memory()
    import torch

    torch.set_num_threads(int(order["environment"]["OMP_NUM_THREADS"]))  # It read our number on import.
    PROGRAMS[order["module"]](numbered(order["arguments"], handles[3:]))


def _stand_alone(order: dict[str, Any], handles: list[int]) -> None:
    """Share nothing with the nursery any more, but what it imported."""
    end = time.monotonic() + ADOPTED_S
    while os.getppid() != order["owner"]:
        if time.monotonic() > end:
            raise TimeoutError("the session did not adopt it")
        time.sleep(1e-4)
    os.setsid()
    die_with_parent()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    for place, handle in enumerate(handles[:3]):
        os.dup2(handle, place)
        os.close(handle)


def _move_memory() -> None:
    """Move what is loaded from now on by a random number of pages, so that one layout is not measured for ever."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    private_anonymous = 0x22
    libc.mmap(None, random.SystemRandom().randrange(1, MOST_PAGES) * PAGE_BYTES, 0, private_anonymous, -1, 0)


if __name__ == "__main__":
    main()
