"""The values that inputs hold, and the bytes that outputs are read as."""

import numpy
import pytest
from torch import Tensor

from loop.calls.call import TensorFile
from loop.model.signature import Fill
from loop.workers.target_functions import make_tensor

NORMAL = Fill()


def drawn(seed: int, *shape: int, room: int = 0) -> Tensor:
    """One input."""
    return make_tensor(NORMAL, seed, 0, TensorFile("x", "", shape, "float32", room))


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (1, 1), (2, 0), (4,), ()])
def test_every_other_seed_has_the_same_normals_with_extremes_at_the_ends(shape: tuple[int, ...]) -> None:
    """Whatever the shape; a seed tells which."""
    stream = numpy.random.RandomState(9 * 64).standard_normal(int(numpy.prod(shape))).astype(numpy.float32)
    assert sorted(stream.tolist()) == sorted(drawn(9, *shape).tolist())
    plain = numpy.random.RandomState(8 * 64).standard_normal(int(numpy.prod(shape))).astype(numpy.float32)
    assert plain.tolist() == drawn(8, *shape).tolist()


@pytest.mark.parametrize("seed", [1, 3, 5, 7])
def test_a_loop_that_leaves_an_end_out_shows(seed: int) -> None:
    """A line's greatest value is its last, and its least one its first, along one axis at least."""
    values = drawn(seed, 7, 33).reshape(7, 33)
    along = [
        values.amax(axis).equal(values.select(axis, -1)) and values.amin(axis).equal(values.select(axis, 0))
        for axis in (0, 1)
    ]
    assert any(along)
