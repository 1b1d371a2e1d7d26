"""Does a workload have room on the GPU? Reckoned before anything is tried, so that the others go on."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loop.machine.gpus import gpus
from loop.model.target import Workload
from loop.model.workloads import accepts
from loop.workers.bench import Bench, Side

CONTEXT_BYTES = 512 * 2**20
"""What a process takes of a GPU before it has a tensor there: code, stacks, the libraries it loads."""
COPIES = {"c_abi": (3, 1), "python": (2, 2), "command": (0, 0)}
"""Times that a kind of side holds its inputs and its output: what is rotated needs originals, a graph an output of
its own. A program brings its own memory."""


class Fitting(NamedTuple):
    """Workloads that have room, and why the others have not."""

    workloads: tuple[Workload, ...]
    left_out: tuple[str, ...]

    def said_after(self, message: str) -> str:
        """The line of a step, with what it left out."""
        if not self.left_out:
            return message
        more = f", and {len(self.left_out) - 1} more" if len(self.left_out) > 1 else ""
        return f"{message or 'nothing has room'}; left out: {self.left_out[0]}{more}"


def fitting(
    bench: Bench, workloads: Sequence[Workload], sides: Sequence[Side], *, wide: bool = False, apart: bool = False
) -> Fitting:
    """Those that all sides have room for at once; all, where nobody tells how much there is.

    `wide`: inputs have room for windows of other values, as when they are timed. `apart`: one side after the other
    has them, so that the one that takes most has to have room.
    """
    free = bench.sensors.free_bytes() if bench.sensors else None
    if free is None:
        return Fitting(tuple(workloads), ())
    room, left_out, gpu = [], [], gpus().first
    often = Counter(side.name for side in sides).items()
    names = ", ".join(side if count == 1 else f"{side} {count} times" for side, count in often)
    for workload in workloads:
        size = needed(bench, workload, sides, wide=wide, apart=apart)
        if size <= free:
            room.append(workload)
            continue
        left_out.append(
            f"{workload.name}: inputs and outputs of {names} take {size / 2**30:.1f} GiB ({size} bytes) of device "
            f"memory together, {free / 2**30:.1f} GiB ({free} bytes) of {gpu.name if gpu else 'the GPU'} are free"
        )
    return Fitting(tuple(room), tuple(left_out))


def needed(
    bench: Bench, workload: Workload, sides: Iterable[Side], *, wide: bool = False, apart: bool = False
) -> int:
    """Bytes of device memory that a workload takes in all processes together, or `apart` in one, at least."""
    call = bench.call(workload, "x", wide=wide)
    on_gpu = [COPIES[side.kind] for side in sides if accepts(side, workload)]
    inputs, output = sum(tensor.pool_size for tensor in call.inputs), call.output.size
    sizes = [ins * inputs + outs * output + (CONTEXT_BYTES if ins else 0) for ins, outs in on_gpu]
    return max(sizes, default=0) if apart else sum(sizes)
