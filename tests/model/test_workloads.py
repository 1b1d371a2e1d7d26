"""Workloads: lists multiplied out, shorthands and defaults filled in, names that tell them apart."""

from typing import Any

import pytest

from loop.model.target import Target, Workload
from loop.model.workloads import WorkloadError, expand_sets, format_entry, make_entry, make_workload, parse_entry

SIGNATURE: dict[str, Any] = {
    "inputs": {"x": "B N", "y": "B M"},
    "outputs": {"output": "B M"},
    "attributes": {
        "causal": {"kind": "flag"},
        "side": {"kind": "choice", "choices": ("left", "right")},
        "scale": {"kind": "number"},
    },
    "shorthand": {"S": ("N", "M")},
}


def make_target(*entries: dict[str, Any], signature: dict[str, Any] | None = None, **sets: Any) -> Target:
    """A target with these workloads in its set `some`."""
    fields: dict[str, Any] = {
        "format": 2,
        "name": "tiny",
        "function": "tiny",
        "signature": signature or SIGNATURE,
        "reference": {"python": "m:f"},
        "baseline": {"python": "m:f"},
        "tolerance": {},
        "dtypes": {"cpu": "float32"},
        "workloads": {"some": entries, **sets},
        "variants": {"cpu": {"kind": "python", "device": "cpu", "module": "m", "function": "f"}},
    }
    return Target.model_validate(fields)


def expanded(*entries: dict[str, Any], seed: int = 0, **fields: Any) -> list[Workload]:
    """These entries as single workloads."""
    return list(expand_sets(make_target(*entries, **fields), ["some"], "float32", seed))


def names(*entries: dict[str, Any], **fields: Any) -> list[str]:
    return [workload.name for workload in expanded(*entries, **fields)]


def test_lists_are_multiplied_out_and_named_by_what_differs() -> None:
    """The last list varies fastest; names leave out defaults but keep digits that differ."""
    assert ["B1 S2 float32", "B1 S2 causal float32", "B1 S3 float32", "B1 S3 causal float32"] == names(
        {"B": 1, "S": (2, 3), "causal": (False, True)}
    )
    entry = {"B": 1, "S": 4, "causal": True, "side": "right", "scale": 0.5, "values": "wide", "dtype": "float16"}
    assert ["B1 S4 causal right scale=0.5 float16 wide"] == names(entry)
    assert ["B1 S4 float32"] == names({"B": 1, "S": 4, "causal": False, "side": "left"})
    scales = (0.1234567, 0.1234568)
    assert ["B1 S4 scale=0.1234567 float32", "B1 S4 scale=0.1234568 float32"] == names(
        {"B": 1, "S": 4, "scale": scales}
    )
    assert ["B1 S4 scale=3 float32"] == names({"B": 1, "S": 4, "scale": (3, 3.0)})


def test_a_workload_keeps_its_seed_and_has_a_weight() -> None:
    """A subset replays the same inputs; a weight, 1 by default, changes no name and no values."""
    alone = expanded({"B": 1, "S": 5}, seed=7)[0]
    among = expanded({"B": 1, "S": (3, 4, 5)}, seed=7)
    assert alone == among[2]
    assert 3 == len({workload.seed for workload in among})
    assert alone.seed + 1 == expanded({"B": 1, "S": 5}, seed=8)[0].seed
    (plain,), (heavy,) = expanded({"B": 1, "S": 4}), expanded({"B": 1, "S": 4, "weight": 3})
    assert (1.0, 3.0) == (plain.weight, heavy.weight)
    assert plain == heavy.model_copy(update={"weight": 1.0})
    with pytest.raises(WorkloadError, match="weight: expected a number above 0, got 0"):
        expanded({"B": 1, "S": 4, "weight": 0})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"B": 1}, "N: expected a size, got nothing"),
        ({"B": 1, "S": -1}, "S: expected a size of 0 or more, got -1"),
        (
            {"B": 1, "S": 4, "cuasal": True},
            "cuasal: expected one of S, B, N, M, causal, side, scale, dtype, values, weight, got an unknown name",
        ),
        ({"B": 1, "S": 4, "causal": 1}, "causal: expected a flag, got 1"),
        ({"B": 1, "S": 4, "side": "up"}, "side: expected one of left, right, got 'up'"),
        (
            {"B": 1, "S": 4, "dtype": "half"},
            "dtype: expected one of float32, float16, bfloat16, float64, int32, int64, uint8, int8, "
            "int16, bool, float8_e4m3fn, float8_e5m2, got 'half'",
        ),
    ],
)
def test_an_entry_that_does_not_fit_is_said(entry: dict[str, Any], message: str) -> None:
    """The message has key, expected value and actual value."""
    with pytest.raises(WorkloadError) as caught:
        expanded(entry)
    assert message == str(caught.value)


@pytest.mark.parametrize("entry", [{"B": 2, "S": 3}, {"B": 1, "N": 3, "M": 5, "causal": True, "scale": 0.5}])
def test_a_workload_is_had_again_by_its_words(entry: dict[str, Any]) -> None:
    """Sizes, attributes, kind of values and type, and the seed that gives the same values."""
    for kind in ({}, {"values": "wide", "dtype": "float16", "side": "right"}):
        (workload,) = expanded({**entry, **kind}, seed=7)
        target = make_target({"B": 1, "S": 1})
        words = format_entry(make_entry(target.signature, workload))
        assert workload == make_workload(target, parse_entry(words), "float64", workload.base_seed)
        assert 7 == workload.base_seed
