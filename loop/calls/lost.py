"""After a kernel crashed nothing works on the device in that process any more: it makes way for a new one."""

import os
import sys
from typing import Any, NoReturn

from loop.calls.cuda.errors import FAULTS

LOST = 70
"""Exit status of a process whose device is lost (EX_SOFTWARE)."""
SAYS = "the device was lost: "
"""How it says so, on its standard error: `loop.workers.sanitizers` reads it there."""


def why_lost() -> str:
    """Why nothing works on the device in this process any more; empty while it does, or where it was never used.

    It waits for what still runs there.
    """
    return _by_driver(sys.modules.get("loop.calls.cuda.call")) or _by_torch(sys.modules.get("torch"))


def _by_driver(module: Any) -> str:
    if module is None or not module.the_device.cache_info().currsize:
        return ""
    driver = module.the_device().driver
    code = driver.attempt("cuCtxSynchronize")
    return str(driver.explain(code)) if code in FAULTS else ""


def _by_torch(torch: Any) -> str:
    if torch is None or not torch.cuda.is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return ""


def leave(refused: str, why: str) -> NoReturn:
    """End this process at once: whoever asked hears of it as of any crash, and what it said last."""
    said = refused if why in refused else f"{refused}; {why}"
    sys.stderr.write(f"\n{SAYS}{said}\n")
    sys.stderr.flush()
    os._exit(LOST)
