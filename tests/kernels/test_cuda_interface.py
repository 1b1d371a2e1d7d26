"""The CUDA variants at their C interface: every argument is computed rightly, or refused with a sentence."""

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from loop.base.places import include_folder
from loop.library.definitions import read_file
from loop.model.target import Target
from tests.conftest import ROOT
from tests.emulator.fixtures import compiled, each_seed
from tests.kernels.emulated_attention import (
    ALIGNED,
    VARIANTS,
    WIDEST,
    Call,
    Kernels,
    draw,
    far_off,
    make_call,
    tensor_of,
)

pytestmark = pytest.mark.slow

NARROW = tuple(name for name in VARIANTS if name not in ("fa1", "auto"))
"""Variants that want rows at multiples of 16 bytes; of 16 features or fewer only those of ALIGNED do."""
ATTENTION = ROOT / "kernels" / "attention"


@pytest.fixture(scope="session")
def kernels(build_cache: Path) -> Kernels:
    """All variants, emulated, from one library."""
    source = Path(__file__).parent / "every_variant.cu"
    assert include_folder().is_dir()
    tuned = read_file(ATTENTION / "target.yaml", Target).value.tuning_macros("sm_89")
    flags = ("-march=native", *tuned, f"-I{ATTENTION}", "-w")
    return Kernels(ctypes.CDLL(str(compiled(source, build_cache, *flags))))


def computes_rightly(kernels: Kernels, call: Call) -> None:
    """Assert that every variant that is for such rows takes a call, and agrees with float64."""
    features = call.q.shape[3]
    for variant in (
        name for name in VARIANTS if features <= WIDEST[name] and (name not in ALIGNED or features % 8 == 0)
    ):
        call.o.fill_(7.0)
        assert (variant, "", "") == (variant, kernels.run(variant, call), far_off(call))


def padded(tensor: Tensor, features: int) -> Tensor:
    """The same numbers in rows that are longer by some features."""
    wide = torch.full((*tensor.shape[:3], tensor.shape[3] + features), math.nan, dtype=tensor.dtype)
    wide[..., : tensor.shape[3]] = tensor
    return wide[..., : tensor.shape[3]]


def shifted(tensor: Tensor, elements: int) -> Tensor:
    """The same numbers that many elements after an aligned address."""
    raw = torch.full((tensor.numel() + elements,), math.nan, dtype=tensor.dtype)
    moved = raw[elements:].view(tensor.shape)
    moved.copy_(tensor)
    return moved


def all_inputs(change: Callable[[Tensor], Tensor]) -> Callable[[Call], Call]:
    """q, k and v with the same change."""
    return lambda call: call.with_(q=change(call.q), k=change(call.k), v=change(call.v))


EVERYWHERE: dict[str, Callable[[Call], Call]] = {
    "contiguous": lambda call: call,
    "heads in the third place": all_inputs(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)),
    "an output with heads in the third place": lambda call: call.with_(
        o=torch.full((2, 19, 2, 64), 7.0, dtype=call.o.dtype).transpose(1, 2)
    ),
    "rows with a gap of 16 bytes": all_inputs(lambda x: padded(x, 8)),
    "keys and values shared by all heads": lambda call: call.with_(
        k=call.k[:, :1].expand_as(call.k), v=call.v[:, :1].expand_as(call.v)
    ),
    "queries shared by all batches": lambda call: call.with_(q=call.q[:1].expand_as(call.q)),
    "one key, again and again": lambda call: call.with_(k=call.k[:, :, :1].expand_as(call.k)),
    "rows from last to first": lambda call: call.with_(flipped=frozenset("qkvo")),
    "keys from last to first": lambda call: call.with_(flipped=frozenset("k"), causal=1.0),
    "keys that are the values": lambda call: call.with_(v=call.k),
    "queries that are the keys": lambda call: call.with_(k=call.q),
    "a stride that no row needs": lambda call: make_call(1, batches=1, heads=1).with_(
        described={f"{name}.strides.{axis}": 12345 for name in "qkvo" for axis in range(3)}
    ),
}
NO_TENSOR_MAP = (
    "keys and values shared by all heads",
    "queries shared by all batches",
    "one key, again and again",
    "rows from last to first",
    "keys from last to first",
)
"""Layouts whose strides are zero or negative: `warp_specialized` declines them."""
ONLY_SCALAR: dict[str, Callable[[Call], Call]] = {
    "rows with a gap of 2 bytes": all_inputs(lambda x: padded(x, 1)),
    "inputs 2 bytes off": all_inputs(lambda x: shifted(x, 1)),
    "inputs 8 bytes off": all_inputs(lambda x: shifted(x, 4)),
    "keys alone 2 bytes off": lambda call: call.with_(k=shifted(call.k, 1)),
    "an output 2 bytes off": lambda call: call.with_(o=shifted(call.o, 1)),
    "an output with a gap of 2 bytes": lambda call: call.with_(o=padded(call.o, 1)),
}


@pytest.mark.parametrize("layout", EVERYWHERE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outer_strides_are_free(kernels: Kernels, variant: str, layout: str) -> None:
    """Transposed, broadcast, padded and reversed tensors are right without a copy."""
    call = EVERYWHERE[layout](make_call())
    if variant == "warp_specialized" and layout in NO_TENSOR_MAP:
        assert kernels.run(variant, call).startswith("strides that a tensor map cannot hold")
        assert (call.o == 7.0).all()
        return
    assert "" == kernels.run(variant, call)
    assert "" == far_off(call)


@pytest.mark.parametrize("layout", ONLY_SCALAR)
def test_rows_off_16_bytes_are_for_fa1_and_auto(kernels: Kernels, layout: str) -> None:
    """Other variants refuse them, and name those that take them."""
    for variant in VARIANTS:
        call = ONLY_SCALAR[layout](make_call())
        message = kernels.run(variant, call)
        if variant in NARROW:
            assert message.startswith("rows do not begin at multiples of 16 bytes")
            assert (call.o == 7.0).all()
        else:
            assert ("", "") == (message, far_off(call))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("depth", [1, 7, 8, 16, 40, 64, 96, 128, 256])
def test_any_number_of_features_up_to_the_width_is_right(kernels: Kernels, depth: int, dtype: torch.dtype) -> None:
    """Up to 16 any; above it multiples of 8."""
    computes_rightly(kernels, make_call(21, 35, depth, batches=1, dtype=dtype, causal=1.0, alignment=1.0))


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (0, 0), (5, 0)])
def test_nothing_to_compute_is_no_error(kernels: Kernels, queries: int, keys: int) -> None:
    """Without queries nothing is written; without keys the output is zero."""
    for variant in VARIANTS:
        for causal in (0.0, 1.0):
            call = make_call(queries, keys, causal=causal, alignment=causal)
            assert "" == kernels.run(variant, call)
            assert (call.o == 0.0).all()


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "float32": ({f"{name}.dtype": 1 for name in "qkvo"}, "not of an element type that this variant takes"),
    "float64": ({f"{name}.dtype": 4 for name in "qkvo"}, "not of an element type that this variant takes"),
    "an unknown type": ({"k.dtype": 99}, "not of an element type that this variant takes"),
    "another type for v": ({"v.dtype": 3}, "not all of the same type"),
    "another type for o": ({"o.dtype": 3}, "not all of the same type"),
    "a null pointer": ({"k.data": None}, "null data pointer"),
    "a null output": ({"o.data": None}, "null data pointer"),
    "rank 3": ({"q.rank": 3}, "not of rank 4"),
    "rank 5": ({"o.rank": 5}, "not of rank 4"),
    "a negative size": ({"q.sizes.2": -1}, "a size is negative"),
    "no features": ({f"{name}.sizes.3": 0 for name in "qkvo"}, "have no features"),
    "other batches": ({"k.sizes.0": 1}, "same batch size"),
    "other heads": ({"v.sizes.1": 1}, "same number of heads"),
    "another output length": ({"o.sizes.2": 18}, "q and o do not have the same sequence length"),
    "other keys than values": ({"v.sizes.2": 18}, "k and v do not have the same sequence length"),
    "other features": ({"k.sizes.3": 56}, "same number of features"),
    "strided features": ({"q.strides.3": 2}, "the last stride must be 1"),
    "features from last to first": ({"q.strides.3": -1}, "the last stride must be 1"),
    "an output shared by all heads": ({"o.strides.1": 0}, "elements of the output share memory"),
    "output rows that overlap": ({"o.strides.2": 32}, "elements of the output share memory"),
    "65536 heads": (
        {**{f"{name}.sizes.1": 65536 for name in "qkvo"}, "o.strides.0": 65536 * 19 * 64},
        "beyond what one launch can count",
    ),
    "65536 batches": ({f"{name}.sizes.0": 65536 for name in "qkvo"}, "beyond what one launch can count"),
    "more keys than can be counted": (
        {f"{name}.sizes.2": (1 << 30) + 1 for name in "kv"},
        "beyond what one launch can count",
    ),
    "sizes that overflow": (
        {f"{name}.sizes.{axis}": (1 << 62) + axis for name in "qkvo" for axis in (0, 1)},
        "share memory",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_tensors_are_refused(kernels: Kernels, mistake: str) -> None:
    """Each error has its own text, and the output stays unchanged."""
    described, sentence = WRONG[mistake]
    call = make_call().with_(described=described)
    for variant in VARIANTS:
        assert sentence in kernels.run(variant, call)
        assert (call.o == 7.0).all()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"causal": 0.5}, "causal is neither 0 nor 1"),
        ({"causal": math.nan}, "causal is neither 0 nor 1"),
        ({"alignment": 2.0}, "alignment is neither 0"),
        ({"alignment": math.nan}, "alignment is neither 0"),
        ({"scale": math.inf}, "scale is not a finite number of type float"),
        ({"scale": -math.inf}, "scale is not a finite number of type float"),
        ({"scale": 1e300}, "scale is not a finite number of type float"),
    ],
)
def test_wrong_attributes_are_refused(kernels: Kernels, fields: dict[str, float], sentence: str) -> None:
    """A flag is 0 or 1, a scale is finite as a float."""
    call = make_call(**fields)  # type: ignore[arg-type]
    for variant in VARIANTS:
        assert sentence in kernels.run(variant, call)
        assert (call.o == 7.0).all()


@pytest.mark.parametrize("scale", [0.0, -3.0, 1e-40, 40.0])
@pytest.mark.parametrize("causal", [0.0, 1.0])
def test_any_finite_scale_is_right(kernels: Kernels, causal: float, scale: float) -> None:
    """Scale zero weighs all keys alike; a negative one prefers small logits; masked keys stay masked."""
    computes_rightly(kernels, make_call(35, 70, batches=1, scale=scale, causal=causal))


@pytest.mark.parametrize("alignment", [0.0, 1.0])
@pytest.mark.parametrize(("queries", "keys"), [(100, 30), (30, 100), (64, 65), (130, 1)])
def test_a_causal_mask_has_two_alignments(kernels: Kernels, queries: int, keys: int, alignment: float) -> None:
    """Rows that see no key are zero, and not NaN."""
    call = make_call(queries, keys, 32, batches=1, heads=1, causal=1.0, alignment=alignment)
    computes_rightly(kernels, call)
    blind = max(0, queries - keys) if alignment else 0
    assert (call.o[:, :, :blind] == 0.0).all()


def grouped(call: Call, group: int) -> Call:
    """The expected output of a call whose query heads share key heads."""
    return call.with_(k=call.k.repeat_interleave(group, 1), v=call.v.repeat_interleave(group, 1))


@pytest.mark.parametrize("causal", [0.0, 1.0])
@pytest.mark.parametrize(("queries", "keys", "heads", "group"), [(1, 90, 2, 4), (20, 33, 2, 2)])
def test_heads_of_queries_share_heads_of_keys(
    kernels: Kernels, queries: int, keys: int, heads: int, group: int, causal: float
) -> None:
    """Heads may come before or after the positions, in queries and in the output."""
    call = make_call(queries, keys, batches=2, heads=heads, causal=causal, alignment=1.0)
    q = draw(2, heads * group, queries, 64, seed=7)
    for variant in VARIANTS:
        for where in (q, q.transpose(1, 2).contiguous().transpose(1, 2)):
            shared = call.with_(q=where, o=torch.full_like(where, 7.0))
            assert (variant, "") == (variant, kernels.run(variant, shared))
            assert (variant, "") == (variant, far_off(grouped(shared, group)))


@pytest.mark.parametrize(("queries", "keys", "depth"), [(1, 1300, 64), (17, 640, 256)])
def test_keys_are_cut_into_ranges_where_there_are_many(
    kernels: Kernels, queries: int, keys: int, depth: int
) -> None:
    """`decode` and `auto` are right if rows see all, some or no keys of a range."""
    for causal, alignment in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0)):
        call = make_call(queries, keys, depth, batches=1, causal=causal, alignment=alignment)
        for variant in ("decode", "auto"):
            call.o.fill_(7.0)
            assert ("", "") == (kernels.run(variant, call), far_off(call))


@pytest.mark.parametrize("key", [0, 63, 79])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_nan_key_reaches_only_rows_that_see_it(kernels: Kernels, variant: str, key: int) -> None:
    """Under a causal mask the rows before it are, bit by bit, as if it were not there."""
    clean = make_call(80, batches=1, causal=1.0)
    assert "" == kernels.run(variant, clean)
    spoilt = clean.with_(k=clean.k.clone(), o=torch.full_like(clean.o, 7.0))
    spoilt.k[:, :, key] = math.nan
    assert "" == kernels.run(variant, spoilt)
    assert torch.equal(clean.o[:, :, :key], spoilt.o[:, :, :key])
    assert spoilt.o[:, :, key:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_huge_finite_values_do_not_overflow(kernels: Kernels, variant: str, dtype: torch.dtype) -> None:
    """Near the type's largest number: sums are divided before they are rounded. Large logits neither."""
    large = {torch.float16: 6e4, torch.bfloat16: 1e36}[dtype]
    call = make_call(33, 90, batches=1, dtype=dtype, causal=1.0)
    call = call.with_(v=(draw(1, 2, 90, 64, seed=3).float().sign() * large).to(dtype), q=call.q * 30)
    assert "" == kernels.run(variant, call)
    scale = 2 * float(call.v.double().abs().max())
    assert call.o.isfinite().all()
    assert ((call.o.double() - call.exact()).abs() <= 1e-2 * scale).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_calls_give_the_same_bits(kernels: Kernels, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of threads, on any number of CPU threads; and on the same inputs at another place."""
    call = make_call(40, 100, batches=1, causal=1.0, alignment=1.0)
    outputs = set()
    for seed in each_seed(monkeypatch, 4):
        monkeypatch.setenv("LOOP_THREADS", str(1 + seed % 2))
        repeated = call.with_(k=call.k.clone(), o=torch.full_like(call.o, float(seed)))
        assert "" == kernels.run(variant, repeated)
        outputs.add(repeated.o.numpy().tobytes())
    assert 1 == len(outputs)


def test_the_passes_of_split_k_make_one_whole(kernels: Kernels) -> None:
    """partial, then reduce, with any number of ranges, also more than there are tiles of keys, and features."""
    for ranges, features in ((1, 64), (2, 64), (5, 64), (64, 64), (33, 128), (7, 40), (3, 7)):
        call = make_call(40, 200, features, causal=1.0, alignment=1.0)
        partials = torch.full((ranges, 2, 2, 40, features + 4), math.nan)
        described = tensor_of(call.with_(q=partials), "q")
        assert "" == kernels.enter("attention_split_partial", [tensor_of(call, n) for n in "qkv"], described, call)
        assert "" == kernels.enter("attention_split_reduce", [described], tensor_of(call, "o"), call)
        assert "" == far_off(call)
