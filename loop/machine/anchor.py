"""A fixed piece of work, timed in microseconds: by it the drift of a device is seen.

On a GPU a chain of multiply-adds in every multiprocessor; on a processor a hash of 8 MiB. Its time says nothing of
a kernel, and is only compared with itself on the same kind of device.
"""

import ctypes
import hashlib
import sys
import time

REPEATS = 9
WARM_UP = 20
PTX = b"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry anchor()
{
  .reg .pred %p;
  .reg .b32 %n;
  .reg .f32 %x;
  mov.b32 %n, 0;
  mov.f32 %x, 0f3F800000;
again:
  fma.rn.f32 %x, %x, %x, %x;
  fma.rn.f32 %x, %x, %x, %x;
  fma.rn.f32 %x, %x, %x, %x;
  fma.rn.f32 %x, %x, %x, %x;
  add.s32 %n, %n, 1;
  setp.lt.s32 %p, %n, 40000;
  @%p bra again;
  setp.eq.f32 %p, %x, 0f40400000;
  @%p trap;
  ret;
}
"""
"""The result is used, or the compiler of the driver would leave the loop out."""


def on_gpu() -> float:
    """Microseconds of the fastest of several launches on the first GPU. Raises Refused where there is none."""
    from loop.calls.cuda.driver import Device, Event, Stream, elapsed_s

    device = Device()
    driver, stream = device.driver, Stream(device.driver)
    module = driver.make("cuModuleLoadData", ctypes.c_void_p, PTX)
    kernel = driver.make("cuModuleGetFunction", ctypes.c_void_p, module, b"anchor")
    found = []
    for _ in range(WARM_UP + REPEATS):
        begin, end = Event(driver), Event(driver)
        begin.record(stream)
        driver.call("cuLaunchKernel", kernel, 4 * device.sms, 1, 1, 128, 1, 1, 0, stream.handle, None, None)
        end.record(stream)
        end.synchronise()
        found.append(elapsed_s(begin, end) * 1e6)
    return min(found[WARM_UP:])


def on_processor() -> float:
    """Microseconds of the fastest of several runs."""
    data, found = bytes(8 << 20), []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        hashlib.sha256(data).digest()
        found.append((time.perf_counter() - begun) * 1e6)
    return min(found)


if __name__ == "__main__":
    sys.stdout.write(f"{on_gpu() if sys.argv[1:] == ['cuda'] else on_processor():.3f}")
