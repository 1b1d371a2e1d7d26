"""Names the tensor beside which a variant faulted, before the process dies of it. Linux."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

SAYS = "stray access: "
"""How the process says so, on its standard error: `loop.workers.sanitizers` reads it there."""
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


class Place(NamedTuple):
    """Where a tensor stands, and the memory around it that nobody else has."""

    name: str
    begin: int
    end: int
    reach: tuple[int, int]


class Watch:
    """While it lasts, a fault beside a tensor is told. Where somebody else handles faults, it is theirs."""

    def __init__(self, places: Callable[[], Sequence[Place]]) -> None:
        self.places = places
        self.guess = ""
        """What is said of a fault that is beside no tensor; empty where there is nothing to say."""
        self._handler = _Handler(self._fault)
        self._libc: Any = ctypes.CDLL(None)
        self._set: list[int] = []

    def __enter__(self) -> "Watch":
        for number in SIGNALS if sys.platform == "linux" else ():
            old = _Action()
            self._libc.sigaction(number, None, ctypes.byref(old))
            if not old.handler:
                action = _Action(ctypes.cast(self._handler, ctypes.c_void_p), flags=SA_SIGINFO)
                self._libc.sigaction(number, ctypes.byref(action), None)
                self._set.append(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._set:
            self._libc.sigaction(number, ctypes.byref(_Action()), None)
        self._set.clear()

    def _fault(self, number: int, info: int, context: int) -> None:
        """Tell it, and let the access happen once more, without us."""
        address = ctypes.c_uint64.from_address(info + SI_ADDR).value
        said = beside(self.places(), address, _verb(context)) or self.guess
        if said:
            os.write(2, f"\n{SAYS}{said}\n".encode())
        self.__exit__()


def _verb(context: int) -> str:
    if os.uname().machine != "x86_64":
        return "reads or writes"
    return "writes" if ctypes.c_uint64.from_address(context + X86_64_ERROR).value & WRITES else "reads"


def beside(places: Sequence[Place], address: int, verb: str) -> str:
    """What an access to an address is, in words; empty when it is beside no tensor."""
    for place in places:
        if place.reach[0] <= address < place.reach[1]:
            if address >= place.end:
                return f"{verb} outside {place.name}: {address - place.end} bytes after its end"
            return f"{verb} outside {place.name}: {place.begin - address} bytes before its beginning"
    return ""
