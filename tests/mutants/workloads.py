"""What mutants are run on: shapes at the edges of tiles, inputs that bite, strides that all differ."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Workload:
    """One call of attention."""

    queries: int
    keys: int
    depth: int
    batches: int = 1
    heads: int = 1
    causal: bool = False
    right: bool = False
    """Whether the diagonal ends at the bottom right."""
    scale: float | None = None
    dtype: str = "float16"
    values: str = "normal"
    layout: str = "contiguous"
    ranges: int = 0
    """When not 0: split_k's two passes are called one by one, with this many ranges."""
    group: int = 1
    """Heads of queries that share one of keys."""

    def heads_of(self, tensor: int) -> int:
        """Of q, k, v or o."""
        return self.heads if tensor in (0, 3) else self.heads // self.group

    @property
    def name(self) -> str:
        """What differs from the defaults."""
        shape = f"B={self.batches} H={self.heads} Sq={self.queries} Sk={self.keys} D={self.depth}"
        others = [f for f in fields(self)[5:] if getattr(self, f.name) != f.default]
        return " ".join([shape, *(f"{one.name}={getattr(self, one.name)}" for one in others)])


def causal(queries: int, keys: int, depth: int, *, right: bool = False, **others: Any) -> Workload:
    """A call under a causal mask."""
    return Workload(queries, keys, depth, causal=True, right=right, **others)


GENERAL = (
    causal(130, 130, 64, batches=2, heads=2, layout="mixed"),
    causal(70, 150, 40, right=True, batches=2, heads=2, layout="mixed", dtype="bfloat16"),
    causal(150, 70, 64, right=True, heads=2, layout="mixed"),  # The first 80 rows see no key.
    causal(150, 70, 32, batches=2, layout="mixed"),
    Workload(100, 200, 128, heads=2, batches=2, layout="mixed"),
    causal(33, 150, 4, batches=2, heads=2, layout="odd"),
    causal(90, 90, 7, heads=2, layout="odd", dtype="bfloat16"),
    causal(40, 129, 16, scale=-0.7, layout="mixed"),
    Workload(65, 80, 64, scale=-0.3),
    causal(200, 200, 64, scale=2.0),
    causal(70, 100, 128, scale=-0.2),
    Workload(16, 250, 32, scale=4.0, values="upper rows"),
    Workload(16, 250, 32, scale=4.0, values="lower rows"),
    Workload(64, 250, 32, values="rising"),
    Workload(64, 250, 32, values="falling"),
    causal(100, 250, 64, right=True, values="falling"),
    causal(70, 100, 64, values="low"),
    Workload(33, 150, 32, values="low"),
    causal(65, 129, 64, right=True, values="sharp", heads=2),
    causal(80, 80, 128, values="huge", dtype="bfloat16"),
    causal(80, 90, 64, values="nan"),
    Workload(20, 90, 32, values="constant"),
    causal(40, 90, 64, values="zero"),
    Workload(20, 40, 64, heads=3, layout="shared"),
    Workload(5, 0, 64, heads=2),
    causal(5, 0, 16, right=True),
    *(causal(n, m, 16, heads=2) for n, m in ((63, 65), (64, 64), (65, 63), (16, 16), (17, 31))),
    *(causal(n, m, 16, right=True) for n, m in ((1, 129), (128, 64), (192, 64), (64, 192), (33, 32), (32, 33))),
    *(Workload(n, m, 32, heads=2) for n, m in ((64, 64), (1, 65), (15, 63), (16, 128), (48, 96))),
)
SPECIAL = {
    "tensor_core": (causal(200, 330, 16, right=True, heads=2), Workload(128, 256, 64)),
    "fa1": (
        causal(40, 70, 100, batches=2, heads=2, layout="mixed"),
        Workload(20, 40, 200, layout="odd"),
        causal(20, 33, 65, heads=2, layout="odd", dtype="bfloat16"),
        Workload(17, 33, 1, heads=2),
        causal(30, 50, 130, right=True, values="falling", layout="odd"),
    ),
    "small": (
        causal(33, 700, 64, right=True, heads=2, layout="mixed"),
        Workload(20, 700, 64, values="rising"),
        Workload(20, 700, 64, values="falling", dtype="bfloat16"),
        causal(20, 300, 128, right=True, values="rising", heads=2),
        causal(40, 600, 64, values="low", right=True),
        Workload(33, 290, 16, heads=2),
        *(Workload(16, keys, 64) for keys in (128, 129, 256, 257)),
    ),
    "decode": (
        causal(3, 1300, 64, right=True, heads=2, batches=2, layout="mixed"),
        causal(17, 700, 128, heads=2, layout="mixed", dtype="bfloat16"),
        Workload(1, 1300, 128, heads=8, batches=2, group=4, layout="mixed"),
        causal(1, 900, 64, right=True, heads=6, group=3, layout="mixed"),
        causal(5, 600, 256, right=True, heads=2, group=2),
        Workload(1, 8192, 64),
        Workload(3, 8192, 40, values="falling"),
        Workload(2, 2500, 128, values="rising"),
        Workload(2, 2500, 64, values="low", dtype="bfloat16"),
        Workload(9, 1300, 64, batches=2, values="huge"),
        causal(2, 1300, 64, right=True, values="nan"),
        Workload(2, 1184, 136),  # 36 ranges: as many as a warp of the reduction can take.
        causal(290, 288, 136, right=True),  # Rows that see no key; ranges of which some rows see nothing.
    ),
    # Two groups above 128 features, or where three waste rows; several pieces, rounds and sections for each block.
    "warp_specialized": (
        causal(200, 130, 64, right=True, heads=2, batches=2),  # Groups that see no key.
        causal(400, 140, 64, right=True, heads=5),  # Pieces that see none, and others after them.
        causal(128, 128, 64, heads=3),  # Whole tiles, a late and an early one to a block.
        causal(320, 384, 64, right=True, heads=3, batches=2, layout="mixed"),
        causal(250, 459, 128, heads=6, group=3, layout="mixed", dtype="bfloat16"),
        causal(130, 194, 128, right=True, heads=5, scale=-0.4),
        causal(448, 380, 64, right=True, heads=4, layout="strided"),
        causal(192, 192, 128, heads=7, values="falling"),
        Workload(300, 200, 64, batches=2, heads=3, scale=-0.3, layout="mixed"),
        Workload(130, 300, 128, heads=4, batches=2, values="rising"),
        causal(130, 200, 192, right=True, heads=4),
        causal(200, 130, 256, heads=3, batches=2, layout="mixed"),
        causal(190, 150, 64, right=True),  # Rows that see no key, of a tile in which a share ends.
        *(Workload(100, 1400, 64, values=values) for values in ("rising", "falling")),  # A tile of five shares.
        Workload(130, 300, 80, heads=2),
        *(Workload(16, 250, 32, scale=4.0, values=f"{half} rows of long tiles") for half in ("upper", "lower")),
    ),
    "split_k": (
        causal(20, 1300, 64, right=True, heads=2, layout="mixed"),
        causal(65, 700, 32, heads=3, batches=2, layout="mixed"),
        Workload(20, 1290, 16, heads=8, dtype="bfloat16"),
        Workload(20, 700, 64, values="rising"),
        causal(20, 700, 64, right=True, values="falling"),
        Workload(9, 700, 128, values="low"),
        causal(150, 200, 16, right=True, heads=2, ranges=2, layout="odd"),
        *(causal(30, 300, depth, right=True, heads=2, ranges=9) for depth in (4, 32, 40, 128)),
        causal(30, 300, 64, heads=2, batches=2, ranges=5, values="falling"),
        Workload(30, 5000, 8, ranges=3, dtype="bfloat16"),
        Workload(33, 320, 24, ranges=5),
        Workload(33, 320, 24, ranges=5),  # The same again, on other values.
    ),
}


WIDEST = {"fa1": 1024, "tensor_core": 256, "decode": 256, "warp_specialized": 256, "small": 128, "split_k": 128}
ALIGNED = ("decode", "warp_specialized")
"""Variants whose rows begin at multiples of 16 bytes, however few features they have."""


def takes(variant: str, one: Workload) -> bool:
    """Whether a variant is for so many features, and such strides."""
    whole = variant == "fa1" or one.depth % 8 == 0 or (variant not in ALIGNED and one.depth <= 16)
    mapped = variant != "warp_specialized" or one.layout != "shared"  # A tensor map has no stride of 0.
    return whole and mapped and one.depth <= WIDEST[variant]


def workloads(variant: str) -> tuple[Workload, ...]:
    """What a variant is run on, in this order."""
    name = variant.partition("@")[0]
    return tuple(one for one in GENERAL + SPECIAL[name] if takes(name, one))


# The values ---------------------------------------------------------------------------------------------------


def inputs(one: Workload, seed: int) -> tuple[Array, Array, Array]:
    """q, k and v, [B, H, S, D], float32."""
    draw = numpy.random.RandomState(seed)
    rows = (one.queries, one.keys, one.keys)
    q, k, v = (
        draw.standard_normal((one.batches, one.heads_of(tensor), n, one.depth)) for tensor, n in enumerate(rows)
    )
    q, k, v = MAKERS[one.values](q, k, v)
    if one.layout == "shared":
        k, v = (numpy.broadcast_to(x[:, :1], x.shape) for x in (k, v))
    return q.astype(numpy.float32), k.astype(numpy.float32), v.astype(numpy.float32)


def _slope(q: Array, k: Array, v: Array, each: float) -> tuple[Array, Array, Array]:
    """Logits that rise by `each` from key to key, and noise."""
    q = 1 + q / 8
    steps = each * (numpy.arange(k.shape[-2]) - k.shape[-2] / 2)
    return q, steps[:, None] / math.sqrt(k.shape[-1]) + k / 8, v


def _half(q: Array, k: Array, v: Array, half: int, each: float = -0.1) -> tuple[Array, Array, Array]:
    """Eight rows of every sixteen have logits that fall gently before a large scale; those of the others are 0."""
    q, k, v = _slope(q, k, v, each / math.sqrt(q.shape[-1]))
    return q * (numpy.arange(q.shape[-2]) // 8 % 2 == half)[:, None], k, v


def _low(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Logits near -150: 2^x of them is no longer a float, their differences are ordinary."""
    return 1 + q / 16, -150 / math.sqrt(k.shape[-1]) + k / 4, v


def _nan(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """One key is NaN: rows that see it are, the others are not."""
    k[..., k.shape[-2] // 2, :] = math.nan
    return q, k, v


MAKERS: dict[str, Callable[[Array, Array, Array], tuple[Array, Array, Array]]] = {
    "normal": lambda q, k, v: (q, k, v),
    "sharp": lambda q, k, v: (20 * q, k, v),
    "rising": lambda q, k, v: _slope(q, k, v, 0.3),
    "upper rows": lambda q, k, v: _half(q, k, v, 0),
    "lower rows": lambda q, k, v: _half(q, k, v, 1),
    "upper rows of long tiles": lambda q, k, v: _half(q, k, v, 0, -0.05),
    "lower rows of long tiles": lambda q, k, v: _half(q, k, v, 1, -0.05),
    "falling": lambda q, k, v: _slope(q, k, v, -0.3),
    "low": _low,
    "huge": lambda q, k, v: (q, k, 1e4 * v),
    "nan": _nan,
    "constant": lambda q, k, v: (q, k[..., :1, :1] + 0 * k, v),
    "zero": lambda q, k, v: (
        q * (numpy.arange(q.shape[-2]) % 2)[:, None],
        k,
        v,
    ),  # Every other row of q: logits 0.
}

# Their strides ------------------------------------------------------------------------------------------------

ORDERS = ((0, 2, 1), (0, 1, 2), (1, 0, 2), (2, 0, 1))
"""How q, k, v and o lie in memory where strides are to differ: batch 0, head 1, row 2, the outermost first."""
PADS = {
    "contiguous": (0, 0, 0, 0),
    "shared": (0, 0, 0, 0),
    "strided": (8, 8, 8, 0),
    "mixed": (8, 16, 24, 8),
    "odd": (1, 2, 3, 5),
}
"""Elements after each row of q, k, v and o. `strided` is the bench's own other layout of inputs."""


def strides(one: Workload, tensor: int) -> tuple[int, int, int, int]:
    """In elements, of q, k, v or o."""
    rows = one.queries if tensor in (0, 3) else one.keys
    sizes = one.batches, one.heads_of(tensor), rows
    order = _order(one.layout, tensor)
    found, step = [0, 0, 0], one.depth + PADS[one.layout][tensor]
    for axis in reversed(order):
        found[axis] = step
        step *= max(sizes[axis], 1)
    if one.layout == "shared" and tensor in (1, 2):
        found[1] = 0
    return found[0], found[1], found[2], 1


def _order(layout: str, tensor: int) -> tuple[int, ...]:
    if layout == "strided":
        return (0, 1, 2) if tensor == 3 else (0, 2, 1)
    return (0, 1, 2) if layout in ("contiguous", "shared") else ORDERS[tensor]


# What is handed to the child ------------------------------------------------------------------------------------


def rounded(values: Array, dtype: str) -> Array:
    """The bits of the nearest elements."""
    if dtype == "float16":
        return values.astype(numpy.float16).view(numpy.uint16)
    bits = values.view(numpy.uint32)
    near = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
    return numpy.where(numpy.isnan(values), numpy.uint16(0x7FFF), near)


def widened(bits: Array, dtype: str) -> Array:
    """Elements as float64."""
    if dtype == "float16":
        return bits.view(numpy.float16).astype(numpy.float64)
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)


def save(path: Path, one: Workload, **arrays: Array) -> None:
    """A workload with its inputs and its truth."""
    numpy.savez(path, workload=numpy.array(json.dumps(asdict(one))), **arrays)  # type: ignore[arg-type]


def load(path: Path) -> tuple[Workload, dict[str, Array]]:
    """What was saved."""
    with numpy.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    return Workload(**json.loads(str(arrays.pop("workload")))), arrays
