"""How a worker that dies says why: on its standard error, where `loop.workers.sanitizers` reads it.

`Watch` names the tensor beside which a variant faulted (Linux). `why_lost` and `leave` end a process whose GPU is
lost: after a kernel crashed nothing works on the device in that process any more.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

STRAY = "stray access: "
"""Before what is said of a fault."""
LOST = "the device was lost: "
"""Before what is said of a lost device."""
LOST_EXIT = 70
"""Exit status of a process whose device is lost (EX_SOFTWARE)."""
SIGNALS = (signal.SIGSEGV, signal.SIGBUS)
SA_SIGINFO, SI_ADDR = 4, 16
"""`sigaction(2)`; where the address stands in a `siginfo_t` of a 64-bit system."""
X86_64_ERROR, WRITES = 192, 2
"""Where the page fault's error code stands in a `ucontext_t` of x86-64, and its bit for a write."""
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """`struct sigaction` of glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class TensorPlace(NamedTuple):
    """Where a tensor stands, and the memory around it that nobody else has."""

    name: str
    begin: int
    end: int
    reach: tuple[int, int]


class FaultWatch:
    """Names the tensor beside which an access faults, while it lasts. Another handler of faults stays in place."""

    def __init__(self, places: Callable[[], Sequence[TensorPlace]]) -> None:
        self.places = places
        self.guess = ""
        """What to say of a fault that is beside no tensor; empty for nothing."""
        self._handler = _Handler(self._fault)
        self._libc: Any = ctypes.CDLL(None)
        self._set: list[int] = []

    def __enter__(self) -> "FaultWatch":
        for number in SIGNALS if sys.platform == "linux" else ():
            old = _Action()
            self._libc.sigaction(number, None, ctypes.byref(old))
            if not old.handler:
                action = _Action(ctypes.cast(self._handler, ctypes.c_void_p), flags=SA_SIGINFO)
                self._libc.sigaction(number, ctypes.byref(action), None)
                self._set.append(number)
        return self

    def __exit__(self, *_: object) -> None:
        while self._set:
            self._libc.sigaction(self._set.pop(), ctypes.byref(_Action()), None)

    def _fault(self, number: int, info: int, context: int) -> None:
        """Say which tensor, and let the access happen once more, without us."""
        address, verb = ctypes.c_uint64.from_address(info + SI_ADDR).value, "reads or writes"
        if os.uname().machine == "x86_64":
            error = ctypes.c_uint64.from_address(context + X86_64_ERROR).value
            verb = "writes" if error & WRITES else "reads"
        if sentence := beside(self.places(), address, verb) or self.guess:
            os.write(2, f"\n{STRAY}{sentence}\n".encode())
        self.__exit__()


def beside(places: Sequence[TensorPlace], address: int, verb: str) -> str:
    """What an access to an address is, in words; empty when it is beside no tensor."""
    for place in places:
        if place.reach[0] <= address < place.reach[1]:
            if address >= place.end:
                return f"{verb} outside {place.name}: {address - place.end} bytes after its end"
            return f"{verb} outside {place.name}: {place.begin - address} bytes before its beginning"
    return ""


def why_lost() -> str:
    """Why nothing works on the device in this process any more; empty while it does, or where it was never used.

    It waits for what still runs there.
    """
    cuda, torch = sys.modules.get("loop.calls.cuda.call"), sys.modules.get("torch")
    if cuda is not None and cuda.the_device.cache_info().currsize:
        from loop.calls.cuda.errors import FAULTS

        driver = cuda.the_device().driver
        code = driver.attempt("cuCtxSynchronize")
        if code in FAULTS:
            return str(driver.explain(code))
    if torch is not None and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            return str(error).strip().splitlines()[0]
    return ""


def leave(refused: str, why: str) -> NoReturn:
    """End this process at once. The parent sees a crash, and reads what it said last."""
    sys.stderr.write(f"\n{LOST}{refused if why in refused else f'{refused}; {why}'}\n")
    sys.stderr.flush()
    os._exit(LOST_EXIT)
