"""Memory of the host for one tensor, with guard zones on either side that can be closed to every access."""

import ctypes
import mmap

from loop.calls.guarded import Memory
from loop.calls.guards import VALUES, Guard, Surroundings, draw
from loop.calls.tensors import PAGE, POISON

FAR = 1 << 20
"""Bytes beyond each zone that nobody may touch: no neighbour is met by an access that goes further."""
ALIGNMENT = 64
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Buffer(Memory):
    """Memory for one tensor between two zones.

    The tensor ends as close to the far zone as a 64-byte boundary allows; `shift` bytes make it misaligned.
    """

    def __init__(self, size: int, shift: int = 0, dtype: str = "float32", zone: int = PAGE) -> None:
        self.size, self._shift, self._zone = size, shift, zone
        self._room = -(-(size + shift) // PAGE) * PAGE
        length = self._room + 2 * zone + 2 * FAR
        self._memory = mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.reach = (self._base, self._base + length)
        self._allow(0, FAR, allowed=False)
        self._allow(length - FAR, FAR, allowed=False)
        self._place(self._aligned_end())
        before = self._start - FAR
        super().__init__(size, Surroundings(before, self._room + 2 * zone - before - size, dtype))
        self._write_zones()
        self.poison()

    def _aligned_end(self) -> int:
        """Bytes of the room before the tensor: the most after which it is as aligned as it shall be."""
        return (self._room - self.size - self._shift) // ALIGNMENT * ALIGNMENT + self._shift

    def _place(self, offset: int) -> None:
        self._start = FAR + self._zone + offset
        self.address = self._base + self._start

    def _allow(self, start: int, size: int, *, allowed: bool) -> None:
        """Open or close whole pages to every access. Raises OSError where the system refuses."""
        if _libc.mprotect(self._base + start, size, mmap.PROT_READ | mmap.PROT_WRITE if allowed else 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def enclose(self, *, at_end: bool) -> bool:
        """Put the tensor at the end of its room, or at its beginning, and close the zones to every access.

        What alignment hides: up to 63 bytes after a tensor that has to begin at a 64-byte boundary.
        """
        self.release()
        flush = self._room - self.size
        end = flush if self._shift and flush % ALIGNMENT else self._aligned_end()
        self._place(end if at_end else self._shift)
        room = FAR + self._zone
        self._memory[room : room + self._room] = self.zones.fill(draw(VALUES), self._room)
        for zone in (FAR, room + self._room):
            self._allow(zone, self._zone, allowed=False)
        return True

    def release(self) -> None:
        """Open the zones again; what stands in them, and in the tensor, is to be written anew."""
        for zone in (FAR, FAR + self._zone + self._room):
            self._allow(zone, self._zone, allowed=True)
        self._place(self._aligned_end())

    def fill(self, data: bytes) -> None:
        """Put `data` (of exactly the tensor's size) into it, and remember it."""
        self.data = data
        self.rotate(0)

    def rotate(self, count: int) -> None:
        """Move what it was filled with by `count` bytes, round the end: other values at every address."""
        data, self.turned = memoryview(self.data), count
        self._memory[self._start : self._start + self.size - count] = data[count:]
        self._memory[self._start + self.size - count : self._start + self.size] = data[:count]

    def poison(self, guard: Guard | None = None) -> None:
        """Make every element NaN, or what the guard says."""
        if guard is None:
            ctypes.memset(self.address, POISON, self.size)
        else:
            self._memory[self._start : self._start + self.size] = self.zones.fill(guard, self.size)

    def read(self) -> bytes:
        """The tensor's bytes."""
        return self._memory[self._start : self._start + self.size]

    def surround(self, guard: Guard) -> None:
        """Write both zones anew."""
        self.zones.renew(guard)
        self._write_zones()

    def _write_zones(self) -> None:
        zones = self.zones
        self._memory[self._start - len(zones.before) : self._start] = zones.before
        end = self._start + self.size
        self._memory[end : end + len(zones.after)] = zones.after

    def read_zones(self) -> tuple[bytes, bytes]:
        """What stands in both zones."""
        end = self._start + self.size
        before = self._memory[self._start - len(self.zones.before) : self._start]
        return before, self._memory[end : end + len(self.zones.after)]
