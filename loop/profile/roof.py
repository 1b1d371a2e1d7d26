"""The roofline: peak rates of a device, and how close a call comes. Measures a processor's."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import WorkFailed
from loop.base.processes import Tick, run
from loop.machine.machine import compiler_version
from loop.model.dtypes import Dtype
from loop.report import format as say

SOURCE = Path(__file__).with_name("roof.c")
COMPILERS = ("g++", "gcc", "clang++", "clang")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-pthread")
TRIAL_MS = 10
LIMIT_S = 20.0
UNDISTURBED_SHARE, TRIES = 0.8, 3
"""Share of its best rate that a valid measurement of the roof reaches, and number of attempts."""
MOST_SHARE = 1.1
"""Share of a measured roof that a call may reach by noise; beyond it the roof is wrong."""
UNMEASURED = "the roof of this machine could not be measured"


@dataclass(frozen=True)
class PeakRates:
    """Peak rates of a device; None if unknown."""

    flops_per_s: float | None = None
    """Operations per second; a multiply-add counts as two."""
    bytes_per_s: float | None = None
    source: str = ""
    """Source of these rates, or why they are unknown."""

    def facts(
        self, flops: float | None, moved_bytes: float | None, seconds: float
    ) -> tuple[dict[str, float | str | None], str]:
        """Roofline facts of a call (Williams, Waterman, Patterson 2009), and the roofs that it
        exceeds, as `1.56 of the arithmetic roof`. `moved_bytes`: the least that it must move, so
        `bandwidth_share` is a lower bound. A share above `MOST_SHARE` proves the roof wrong: it and
        `roof` become None."""
        intensity = flops / moved_bytes if flops is not None and moved_bytes else None
        facts: dict[str, float | str | None] = {"flops": flops, "bytes": moved_bytes}
        facts["intensity"] = intensity
        exceeded = []
        for fact, roof, amount, peak in (
            ("flops_share", "arithmetic", flops, self.flops_per_s),
            ("bandwidth_share", "bandwidth", moved_bytes, self.bytes_per_s),
        ):
            facts[fact] = None
            if amount is not None and peak and seconds > 0:
                share = amount / seconds / peak
                if share > MOST_SHARE:
                    exceeded.append(f"{share:.3g} of the {roof} roof")
                else:
                    facts[fact] = min(share, 1.0)
        facts["roof"] = None
        if not exceeded and intensity is not None and self.flops_per_s and self.bytes_per_s:
            # Left of the roofline's ridge, bandwidth limits the call.
            is_left = intensity * self.bytes_per_s < self.flops_per_s
            facts["roof"] = "memory" if is_left else "compute"
        return facts, " and ".join(exceeded)


def measure_roof(folder: Path, dtype: Dtype, threads: int, working_set: int) -> Generator[Tick, None, PeakRates]:
    """Measure a processor's rates with `threads` threads on `working_set` bytes, by a program that is compiled in
    `folder`. Repeats disturbed measurements; two-byte types run as float32, as few processors compute in them.
    Raises LoopError."""
    program = folder / "roof"
    compiler = next((name for name in COMPILERS if compiler_version(name)), None)
    if compiler is None:
        raise WorkFailed(f"{UNMEASURED}: there is no C compiler")
    command = [compiler, *FLAGS, str(SOURCE), "-o", str(program)]
    done = yield from run(command, limit_s=LIMIT_S, note="compiling the program that measures roofs")
    if not done.succeeded:
        raise WorkFailed(f"{UNMEASURED}: {compiler} {done.ending}")
    kind = "double" if dtype == "float64" else "float"
    command = [str(program), kind, str(threads), str(working_set), str(TRIAL_MS)]
    for _ in range(TRIES):
        done = yield from run(command, limit_s=LIMIT_S, note="measuring what the processor reaches")
        if not done.succeeded:
            raise WorkFailed(f"{UNMEASURED}: {done.ending}")
        figures = json.loads(done.output)
        flops_per_s, bytes_per_s = figures["flops_per_s"], figures["bytes_per_s"]
        # A rate far below the best trial's: another program shared the core.
        if flops_per_s >= UNDISTURBED_SHARE * figures["most_flops_per_s"]:
            rates = f"of {flops_per_s / 1e9:.3g} GFLOP/s and {bytes_per_s / 1e9:.3g} GB/s"
            source = f"{rates}, measured here on {say.count(threads, 'thread')}"
            return PeakRates(flops_per_s, bytes_per_s, source)
    raise WorkFailed("the roof of this machine is not shown: other programs ran while it was measured")
