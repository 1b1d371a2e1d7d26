"""What a function is given is taken apart into tensors and the rest, and put together around other tensors."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from loop.calls.call import Call, FunctionTerms, Refused, TensorFile
from loop.calls.callee import Callee, digest, put_together, structure_digest, structure_of, take_apart


class Pair(NamedTuple):
    """Two values by name."""

    left: Any
    right: Any


def test_a_structure_is_the_same_around_other_tensors() -> None:
    """Tuples by name, lists, dicts, modules and numbers; a tensor that stands twice is one."""
    shared, module = torch.ones(2), torch.nn.Linear(2, 1)
    value = {"a": [shared, 3, Pair(shared, "word")], "m": module}

    apart = take_apart(value)
    again = put_together(apart.rest, [one + 1 for one in apart.tensors])

    assert ("a.2.left", "m.weight", "m.bias") == apart.names
    assert again["a"][0] is again["a"][2].left
    assert (3, "word") == (again["a"][1], again["a"][2].right)
    assert torch.equal(torch.full((2,), 2.0), again["a"][0])
    assert torch.equal(module.weight + 1, again["m"].weight)


def test_a_number_or_a_tuple_of_one_is_the_only_output() -> None:
    """A reference may give it so, and the same function as a variant."""
    call = Call("k", "float64", (), TensorFile("output", "", (), "float64"), {}, ())
    callee = Callee(torch.sum, None, FunctionTerms("f"), call, "cpu")
    one = torch.ones((), dtype=torch.float64)
    assert [[one]] * 3 == [callee.outputs(result) for result in (one, (one,), 1.0)]
    with pytest.raises(Refused, match="got tuple"):
        callee.outputs((one, one))


def test_a_structure_that_somebody_changed_is_not_read(tmp_path: Path) -> None:
    """Reading it would run what stands there, in the judge too."""
    path, output = tmp_path / "given", TensorFile("output", "", (1,), "float32")
    rest = take_apart(([torch.ones(1)], {})).rest
    path.write_bytes(rest)
    call = Call("k", "float32", (), output, {}, (), structure=str(path), structure_digest=structure_digest(rest))
    assert rest == structure_of(call)
    path.write_bytes(rest + b"more")
    with pytest.raises(Refused, match="was changed while a variant ran"):
        structure_of(call)
    path.unlink()
    with pytest.raises(Refused, match="No such file"):
        structure_of(call)


def test_a_digest_tells_any_change_and_nothing_but_the_values() -> None:
    values = torch.randn(3_000_001)
    changed = [values.clone() for _ in range(3)]
    changed[0][-1] += 1
    changed[1][0], changed[1][1] = values[1], values[0]
    changed[2] = changed[2].roll(1 << 21)
    assert digest(values) == digest(values.clone()) == digest(torch.cat([values[:1], values])[1:])
    assert len({digest(one) for one in (values, *changed)}) == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64, torch.bfloat16])
def test_a_digest_tells_signs_that_change_together(dtype: torch.dtype) -> None:
    """All of them, every other one, or two: an even number of highest bits is no change of a sum of such words."""
    values = torch.ones(64, dtype=dtype)
    ways = [values.clone() for _ in range(4)]
    ways[0].neg_()
    ways[1][1::2].neg_()
    ways[2][6:8].neg_()
    assert len({digest(one) for one in (*ways, -values[:32])}) == 5
    turned = torch.complex(torch.ones(8), torch.ones(8))
    assert digest(turned) != digest(turned.conj())
