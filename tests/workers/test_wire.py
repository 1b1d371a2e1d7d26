"""Data on the wire: messages, values of inputs, bytes of outputs."""

import json

import numpy
import pytest
from torch import Tensor

from loop.calls.call import TensorFile
from loop.model.target import Fill
from loop.workers import judge_messages, messages
from loop.workers.messages import CallRange, Computed, Kernel, Observe, RefusalReply, reply_line
from loop.workers.program import read_reply
from loop.workers.target_functions import make_tensor

COMPUTED = Computed(
    changed_inputs=(),
    stray_writes=("a",),
    replaced_functions=(),
    digests=("d",),
    stray_reads="x",
    call_ranges=(CallRange(1, 2),),
)
FIELDS = json.loads(reply_line(COMPUTED))
REPLIES = [messages.ObeyOrders.reply_type(), Computed, Observe.reply_type(), None, judge_messages.Finding]


def test_a_reply_as_a_worker_writes_it_is_understood() -> None:
    """Every value of its type; a refusal in place of any reply."""
    assert COMPUTED == read_reply(reply_line(COMPUTED).encode(), Computed)
    assert None is read_reply(reply_line(None).encode(), messages.Unstage.reply_type())
    refusal = RefusalReply("no", "declined")
    assert refusal == read_reply(reply_line(refusal).encode(), Computed)
    observed = b'[{"name": "k", "us": 7.0, "registers": null}]'
    assert (Kernel("k", 7.0, None),) == read_reply(observed, Observe.reply_type())


@pytest.mark.parametrize("key", FIELDS)
def test_a_value_of_another_type_is_not_understood(key: str) -> None:
    """Missing and additional values are refused as well."""
    incomplete = {name: FIELDS[name] for name in FIELDS if name != key}
    values = (None, 7, {}, [7], [[]], {"a": 1})
    for wrong in (*({**FIELDS, key: value} for value in values), incomplete, {**FIELDS, "more": 1}):
        with pytest.raises(ValueError, match="validation error"):
            read_reply(json.dumps(wrong).encode(), Computed)


GARBAGE = [
    b"",
    b"garbage",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"message": []}',
    b'{"message": "no"}',
    b"1" * 10_000,
    b"NaN",
]
GARBAGE.append(b'{"message": "no", "cause": "so", "code": "", "seed": null}')


@pytest.mark.parametrize("kind", REPLIES)
def test_garbage_is_not_understood(kind: type) -> None:
    """It is an error of the variant, not a bug."""
    for line in GARBAGE:
        with pytest.raises(ValueError, match="validation error"):
            read_reply(line, kind)


def drawn(seed: int, *shape: int, room: int = 0) -> Tensor:
    """One input."""
    return make_tensor(Fill(), seed, 0, TensorFile("x", "", shape, "float32", room))


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (1, 1), (2, 0), (4,), ()])
def test_every_other_seed_has_the_same_normals_with_extremes_at_the_ends(shape: tuple[int, ...]) -> None:
    """Every second seed puts extremes at the ends, for all shapes."""
    stream = numpy.random.RandomState(9 * 64).standard_normal(int(numpy.prod(shape))).astype(numpy.float32)
    assert sorted(stream.tolist()) == sorted(drawn(9, *shape).tolist())
    plain = numpy.random.RandomState(8 * 64).standard_normal(int(numpy.prod(shape))).astype(numpy.float32)
    assert plain.tolist() == drawn(8, *shape).tolist()


@pytest.mark.parametrize("fill", [Fill(), Fill(offset=1000.0)])
def test_an_input_in_double_has_digits_that_float32_does_not_hold(fill: Fill) -> None:
    """Else a kernel that copies it through a float would pass."""
    values = make_tensor(fill, 8, 0, TensorFile("x", "", (64,), "float64"))
    assert not values.equal(values.float().double())
    assert values.float().equal(make_tensor(fill, 8, 0, TensorFile("x", "", (64,), "float32")))


@pytest.mark.parametrize("seed", [1, 3, 5, 7])
def test_a_loop_that_leaves_an_end_out_shows(seed: int) -> None:
    """A line's greatest value is its last, and its least one its first, along one axis at least."""
    values = drawn(seed, 7, 33).reshape(7, 33)
    along = [
        values.amax(axis).equal(values.select(axis, -1)) and values.amin(axis).equal(values.select(axis, 0))
        for axis in (0, 1)
    ]
    assert any(along)


@pytest.mark.parametrize("seed", [2, 3, 4, 5])
@pytest.mark.parametrize("shape", [(3, 65_541), (1, 32_773)])
def test_an_index_of_too_few_bits_shows_under_every_seed(seed: int, shape: tuple[int, int]) -> None:
    """The greatest value of a long row, with odd seeds the least too, is beyond an index of 16 bits."""
    values = drawn(seed, *shape).reshape(shape)
    limit = 65_535 if shape[1] > 65_536 else 32_767  # Of an unsigned index; else of a signed one.
    assert (values.argmax(1) > limit).any()
    assert seed % 2 == 0 or (values.argmin(1) > limit).any()
