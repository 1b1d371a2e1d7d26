"""`warp_specialized` where few multiprocessors share out much work: pieces, sections, groups that see nothing."""

import ctypes
from pathlib import Path

import numpy
import pytest

from loop.library.definitions import read_file
from loop.model.target import Target
from tests.conftest import ROOT
from tests.emulator.fixtures import Array, Fixtures, compiled, each_seed
from tests.kernels.emulated_attention import Call, Kernels, draw, far_off, make_call

pytestmark = pytest.mark.slow

ATTENTION = ROOT / "kernels" / "attention"
SMS = 5
WIDE = (64, 128, 192, 256)
DEPTHS = {"kThreeGroups": (64, 128), "kTwoGroups": WIDE, "kFolded": WIDE, "kOneGroup": WIDE, "kEven": (64, 128)}
"""Features that each of the kernels has."""


def flags(*macros: str) -> tuple[str, ...]:
    """An emulated build with the tiles of Hopper, but for these macros."""
    tuned = read_file(ATTENTION / "target.yaml", Target).value.tuning_macros("sm_90")
    names = [macro.partition("=")[0] for macro in macros]
    unchanged = [flag for flag in tuned if flag.removeprefix("-D").partition("=")[0] not in names]
    return ("-march=native", *unchanged, *(f"-D{macro}" for macro in macros), f"-I{ATTENTION}", "-w")


class Groups(Kernels):
    """`warp_specialized` for SMS multiprocessors, always the same of its kernels."""

    def __init__(self, kernel: str, cache: Path) -> None:
        macros = f"ATTENTION_WIDE_SMS={SMS}", f"ATTENTION_GROUPS_ONLY={kernel}"
        source = ATTENTION / "cuda" / "warp_specialized.cu"
        super().__init__(ctypes.CDLL(str(compiled(source, cache, *flags(*macros)))))
        self.depths = DEPTHS[kernel]

    def off(self, call: Call) -> str:
        """The error of a call, or how its output differs from float64; "" if it is right."""
        call.o.fill_(7.0)
        return self.run("warp_specialized", call) or far_off(call)


@pytest.fixture(scope="module", params=DEPTHS)
def kernels(request: pytest.FixtureRequest, build_cache: Path) -> Groups:
    return Groups(request.param, build_cache)


@pytest.mark.parametrize(("causal", "alignment"), [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize(("queries", "keys"), [(400, 300), (400, 130), (250, 459), (192, 128), (65, 1)])
def test_blocks_take_several_pieces(
    kernels: Groups, queries: int, keys: int, causal: float, alignment: float
) -> None:
    """Six heads in two sections, in rounds; ragged lengths; rows, groups and pieces that see no key."""
    for depth in kernels.depths:
        call = make_call(queries, keys, depth, heads=3, causal=causal, alignment=alignment)
        assert (depth, "") == (depth, kernels.off(call))


@pytest.mark.parametrize("causal", [0.0, 1.0])
def test_heads_of_queries_share_keys_of_a_section(kernels: Groups, causal: float) -> None:
    """Under a mask each head is computed by itself; without one heads are rows of one head."""
    for depth in kernels.depths:
        keys = make_call(210, 280, depth, heads=2, causal=causal, alignment=1.0)
        q = draw(2, 6, 210, depth, seed=7)
        call = keys.with_(q=q, o=q.clone().fill_(7.0))
        assert "" == kernels.run("warp_specialized", call)
        whole = call.with_(k=call.k.repeat_interleave(3, 1), v=call.v.repeat_interleave(3, 1))
        assert (depth, "") == (depth, far_off(whole))


def test_a_group_passes_over_tiles_that_it_does_not_see(kernels: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group skips tiles that its mask hides while others compute, in any order of warps and copies."""
    shapes = (200, 130), (320, 384), (130, 194), (448, 380)
    for seed in each_seed(monkeypatch, 6):
        for queries, keys in shapes:
            call = make_call(queries, keys, 64, heads=3, batches=1, causal=1.0, alignment=1.0)
            assert (seed, queries, keys, "") == (seed, queries, keys, kernels.off(call))


@pytest.fixture(scope="module")
def schedules(build_cache: Path) -> Fixtures:
    """The schedule of pieces for the multiprocessors of an H100."""
    return Fixtures(compiled(Path(__file__).with_name("pieces.cu"), build_cache, *flags()))


def takers(schedules: Fixtures, blocks: int, tiles: int, heads: int, batches: int, section: int) -> Array:
    """Block that took each piece, [heads of all batches, row tiles]: from 1 on; 0 for none, -1 for two."""
    blocks_by_piece = numpy.zeros((heads * batches, tiles), numpy.int32)
    assert "" == schedules.fault("take_pieces", blocks, tiles, heads, batches, section, blocks_by_piece)
    return blocks_by_piece


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 8, 13, 132])
def test_every_piece_is_taken_once(schedules: Fixtures, blocks: int) -> None:
    """Exactly one block takes each piece, for all section sizes, also if the last section is narrower."""
    for tiles in (1, 2, 3, 7, 16):
        for heads, batches in ((1, 1), (2, 3), (5, 1), (4, 4), (37, 1)):
            for section in (0, 1, 2, 3, 5, 7, heads * batches):
                taken_by = takers(schedules, blocks, tiles, heads, batches, section)
                assert (taken_by > 0).all(), (tiles, heads, batches, section)
                assert taken_by.max() <= blocks


@pytest.mark.parametrize(
    ("groups", "causal", "folded"), [(1, 1, 0), (2, 1, 1), (2, 1, 0), (3, 1, 0), (2, 0, 0), (3, 0, 0)]
)
def test_every_row_is_taken_once(schedules: Fixtures, groups: int, causal: int, folded: int) -> None:
    """Adjacent or folded; in the last round without a mask by blocks of fewer groups, on more multiprocessors."""
    for queries, heads, batches in (
        (64, 1, 1),
        (65, 3, 2),
        (1381, 12, 1),
        (1408, 5, 9),
        (2325, 8, 1),
        (4000, 8, 2),
    ):
        tiles = (queries - 1) // 64 + 1
        taken_by = numpy.zeros((heads * batches, tiles), numpy.int32)
        assert "" == schedules.fault("take_rows", queries, heads, batches, groups, causal, folded, taken_by)
        assert (taken_by > 0).all(), (queries, heads, batches)
        most = numpy.bincount(taken_by.ravel()).max()
        assert causal or most <= -(-taken_by.size // 132 // groups) * groups, (queries, heads, batches)
