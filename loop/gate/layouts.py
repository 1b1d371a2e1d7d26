"""How the inputs of a call are laid out in memory, and on which workloads layouts are tried."""

from collections.abc import Sequence

from loop.calls.call import Call
from loop.model.dtypes import Layout, is_floating
from loop.model.target import Workload
from loop.model.workloads import accepts
from loop.workers.bench import Bench, Side

LAYOUTS: tuple[Layout, ...] = ("contiguous", "strided", "misaligned", "transposed", "broadcast")
GENERATED = "tensors lie as the target's own generator makes them"
TIES = "equal values tie, and outputs are whole numbers"


def laid_out(side: Side, workloads: Sequence[Workload]) -> dict[str, Workload]:
    """The first workload of each type to lay out otherwise: no size is 0, and none 1 if possible."""
    if side.kind == "command":  # It reads files.
        return {}
    chosen: dict[str, Workload] = {}
    whole = [workload for workload in workloads if accepts(side, workload) and 0 not in workload.sizes.values()]
    for workload in sorted(whole, key=lambda workload: 1 in workload.sizes.values()):
        chosen.setdefault(workload.dtype, workload)
    return chosen


def layouts_of(bench: Bench, side: Side, chosen: Workload | None, workload: Workload) -> Sequence[Layout]:
    """How the inputs of a workload are laid out, where `chosen` is the one on which layouts are tried.

    Broadcast ones come with each set of values: each is broadcast along another axis.
    """
    if chosen is None or chosen.name != workload.name:
        return LAYOUTS[:1]
    name, call = side.name, bench.call(workload, side.name)
    if call.structure or call.updates:
        bench.notes[f"{', '.join(LAYOUTS[1:])} inputs: {GENERATED}"] = None
        return LAYOUTS[:1]
    tried = LAYOUTS if chosen.seed == workload.seed else (LAYOUTS[0], "broadcast")
    return [layout for layout in tried if _has(bench, bench.call(workload, name, layout=layout), layout, call)]


def _has(bench: Bench, call: Call, layout: Layout, known: Call) -> bool:
    """Whether a call's inputs can be laid out so, and whether that can show a mistake; `known` has all outputs."""
    if layout == "transposed":
        return any(tensor.strides(layout) != tensor.strides("contiguous") for tensor in call.inputs)
    if layout != "broadcast" or all(tensor.same < 0 for tensor in call.inputs):
        return layout != "broadcast"
    if all(is_floating(output.dtype) for output in known.outputs):
        return True
    bench.notes[f"broadcast inputs: {TIES}"] = None
    return False
