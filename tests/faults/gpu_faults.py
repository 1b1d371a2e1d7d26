"""A kernel that faults on the GPU fails its own check only; the next command finds a healthy device."""

import fcntl
import functools
import json
from collections.abc import Iterator
from pathlib import Path

from tests.device.make_target import make_target
from tests.faults import Case
from tests.faults.world import World, allow, left, traceback_in

NAME = "GPU faults: illegal address, misaligned, assert, hang, out of memory: x 20"
MUST = "the next step healthy, 100 of 100"
ASKED_FOR = True  # It needs an NVIDIA GPU and nvcc.
SIDE_BY_SIDE = 12
LIMIT_S = 1200.0
ALONE = "exhausts"  # It takes all memory, so no other case can run beside it.
FAULTS = ("crashes", "misaligned", "asserts", "hangs", ALONE)
TIMES = 20
FAILED = {"crashed", "hung", "refused"}  # Statuses that a check of a faulting kernel may have.


def cases(seed: int) -> Iterator[Case]:
    """Each fault twenty times, in turns; last the one that takes all memory. The seed changes nothing."""
    together = [(number, fault) for number in range(TIMES) for fault in FAULTS if fault != ALONE]
    for number, fault in [*together, *((number, ALONE) for number in range(TIMES))]:
        yield f"{fault} {number}", functools.partial(faulted, fault=fault)


def faulted(folder: Path, *, fault: str) -> str:
    """Verify a kernel that faults, then a right one; the builds are shared by all cases."""
    builds = folder.parent / "builds"
    builds.mkdir(mode=0o700, exist_ok=True)
    with (folder.parent / "memory.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if fault == ALONE else fcntl.LOCK_SH)
        return _faulted(folder, builds, fault)


def _faulted(folder: Path, builds: Path, fault: str) -> str:
    world = World(folder, {"LOOP_CACHE": str(builds)})
    make_target(world.target)
    allow(world)
    for variant, code in ((fault, 1), ("right", 0)):
        running = world.start(
            "kernels", "verify", variant, "--device", "cuda", "--workloads", "some", "--json", "--target",
            str(world.target),
        )  # fmt: skip
        broken = _not_as_told(variant, running.end(), code, running.stdout) or traceback_in(running)
        if broken:
            return broken
    return left(world)


def _not_as_told(variant: str, ended: int, code: int, stdout: Path) -> str:
    """How the outcome of one verification differs from the expected one; "" if it does not."""
    if ended != code:
        return f"verifying {variant} ended with {ended}, not {code}: {stdout.read_text()[-300:]}"
    (checked,) = json.loads(stdout.read_text())["steps"][-1]["output"]["variants"]
    statuses = {check["status"] for check in checked["checks"]}
    if code == 0 and statuses - {"right", "unsupported"}:
        return f"{variant} is {', '.join(sorted(statuses))}"
    return "" if code == 0 or statuses & FAILED else f"{variant} is {', '.join(sorted(statuses))}"
