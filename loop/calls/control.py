"""The page through which the judge orders calls and sees that they are done. Plain numbers: both sides read it.

Words of 64 bits in memory that both processes map. The judge writes everything but DONE, OWN_NS and CAPTURED.
"""

CONTROL_BYTES = 1 << 16
ORDER, DONE = 0, 8
"""The number of the order, and of the last one that was carried out; each in a cache line of its own."""
OP, COUNT, COLD, OWN_NS = 16, 17, 18, 19
"""What is ordered, how many calls, whether caches are emptied before; nanoseconds by a clock of the worker's."""
CAPTURED = 20
"""Whether a graph holds the calls that were made ready: nothing on the host decides any more what they compute."""
ROTATIONS = 24
"""Bytes by which each input is rotated, for inputs that lie in a device's memory."""
OFFSETS = 64
"""Where the windows of each call begin, in elements: call by call, input by input."""
MAX_OFFSETS = CONTROL_BYTES // 8 - OFFSETS

LEAVE, READY, RUN, SETTLE, GIVE = range(5)
"""Stop waiting for orders; make ready for some calls; make them; have their results be there, where they lie; put
them into their slots."""
