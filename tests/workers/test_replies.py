"""What stands on the wire from a worker: its replies, and nothing else."""

import json

import pytest

from loop.workers.replies import FORMS, understood

CALL = {
    **{key: [] for key in ("outputs", "digests", "changed", "writes", "broken")},
    "status": "ok",
    "flaky": False,
    "unwritten": False,
    "reads": "",
}


def test_a_reply_as_a_worker_writes_it_is_understood() -> None:
    """Every value of its type; more than is asked for does no harm."""
    assert CALL == understood(json.dumps(CALL).encode(), "call")
    assert {"status": "ok"} == understood(b'{"status": "ok"}', "load")
    assert "no" == (understood(b'{"status": "refused", "message": "no"}', "call") or {})["message"]


@pytest.mark.parametrize("key", [key for key in CALL if key != "status"])
@pytest.mark.parametrize("value", [None, 7, {}, [7], [[]], {"a": 1}])
def test_a_value_of_another_type_is_not(key: str, value: object) -> None:
    """Whoever reads it later may rely on it; a value that is missing is no better."""
    assert understood(json.dumps({**CALL, key: value}).encode(), "call") is None
    assert understood(json.dumps({one: CALL[one] for one in CALL if one != key}).encode(), "call") is None


GARBAGE = [
    *(b"", b"garbage", b"\xff\xfe", b"[" * 100_000, b"7", b"[]", b"{}", b'{"status": []}'),
    *(b'{"status": "fine"}', b'{"status": "refused"}', b'{"status": "bug", "message": "not mine"}'),
    *(b'{"status": "ok", "peak_bytes": 1e999}', b'{"status": "ok", "peak_bytes": NaN}', b"1" * 10_000),
]


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("do", [do for do, form in FORMS.items() if form])
def test_garbage_is_not(line: bytes, do: str) -> None:
    """It never raises: it is nobody's bug but the variant's."""
    assert understood(line, do) is None
