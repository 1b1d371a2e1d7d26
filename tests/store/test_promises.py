"""What advice promised and what came of it, as the index has it from a journal."""

from pathlib import Path

from loop.model.record import Opened
from loop.store import index
from tests.makers import make_finished, make_record, make_speed
from tests.store.folders import make_session

PROMISE = {"advice": "mixed", "stated": [1.1, 1.2]}
BUILT = make_finished("build", output={"builds": [{"variant": "cpu", "build_id": "b1"}]})


def profiled(**fields: object) -> dict[str, object]:
    """A profile of `cpu`, as a journal has it."""
    return {"variant": "cpu", "workload": "w", "facts": {"ratio": 0.5}, "promise": PROMISE, **fields}


def test_a_promise_is_kept_with_its_build(tmp_path: Path) -> None:
    """And with the speed there was, so that a later session can be held against it."""
    look = make_finished("profile", output={"profiles": [profiled(), profiled(variant="eager")]})
    folder = make_session(tmp_path, "s0", Opened(pid=1), BUILT, look)
    verdicts = [make_speed("w", ratio=0.5), make_speed("x", ratio=2.0, verdict="inconclusive")]
    folder.write_record(make_record(folder.head(), verdicts))
    (row,) = index.rows(tmp_path)
    (one,) = row.promises
    assert ("cpu", "w", "b1", 0.5) == (one.variant, one.workload, one.build, one.ratio)
    assert {"cpu": "b1"} == row.builds
    assert [{"w": 0.5}] == list(row.speeds.values())


def test_what_a_change_came_to_is_kept(tmp_path: Path) -> None:
    """Also of one that was taken back; not of one that promised nothing."""
    came = {"promise": PROMISE, "variant": "cpu", "workload": "w", "actual": 1.0, "basis": "change"}
    base = {"number": 1, "variant": "cpu", "reason": "r"}
    tried = [{**base, "outcome": "reverted", "promised": came}, {**base, "outcome": "kept"}]
    steps = [
        make_finished(
            "decide", action="change.decide", run=run, output={"ok": True, "message": "m", "tried": change}
        )
        for run, change in enumerate(tried, start=1)
    ]
    make_session(tmp_path, "s0", Opened(pid=1), *steps)
    (row,) = index.rows(tmp_path)
    assert ["below"] == [gain.side for gain in row.gains]
