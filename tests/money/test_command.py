"""`loop cost show|rates`: over real session folders, damaged ones among them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loop.model.money import Charge, Saving, Unmeasured
from loop.model.record import Opened, Started
from loop.money.command import row_of
from loop.money.ledger import Totals
from loop.session.closing import measured_use
from loop.store.sessions import SessionFolder
from tests.makers import make_bill, make_check, make_finished, make_record, make_session_head, make_verify
from tests.projects import loop, make_project
from tests.store.folders import make_session

ENGINEER = Charge(resource="engineer", rate="engineer", seconds=36.0, usd=0.5)
NO_AI = Unmeasured(resource="ai", reason="nobody read a log")
STARTED = Started(run=1, pattern="baseline-first", step="verify", title="t", index=1, of=2, budget_s=1.0)


def add(name: str, *charges: Charge, **bill: Any) -> SessionFolder:
    """A session that cost this."""
    folder = make_session(Path("../sessions").resolve(), name, Opened(pid=1), STARTED, make_finished(), status="")
    fields = {"unmeasured": (NO_AI,), **bill}
    made = make_bill(charges=charges, usd=sum(one.usd for one in charges), **fields)
    folder.write_record(make_record(make_session_head(id=name), bill=made, seconds=36.0))
    return folder


def shown(*words: str) -> dict[str, Any]:
    """What `loop cost show --json` says."""
    done = loop("cost", "show", "--json", *words)
    assert 0 == done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_totals_by_resource_with_unknown_ai_as_null() -> None:
    """0.50 of an engineer in each of two sessions; AI is unknown, with a note, and not 0."""
    add("a", ENGINEER)
    add("b", ENGINEER)
    found = shown()
    assert {"minutes", "gpu_usd", "ai_usd", "engineer_usd", "usd"} <= set(found["totals"])
    totals = {name: found["totals"][name] for name in ("minutes", "gpu_usd", "ai_usd", "engineer_usd", "usd")}
    assert {"minutes": 1.2, "gpu_usd": 0.0, "ai_usd": None, "engineer_usd": 1.0, "usd": 1.0} == totals
    assert "AI: not measured in 2 of 2 sessions (nobody read a log)" in found["notes"]
    assert 4 == found["schema_version"]
    text = loop("cost", "show").stdout
    assert "?" in text.splitlines()[1]
    assert "AI: not measured" in text


@pytest.mark.slow
def test_a_range_of_sessions() -> None:
    """Only those are counted."""
    for name in ("a", "b", "c"):
        add(name, ENGINEER)
    assert 1.0 == shown("--sessions", "b..c")["totals"]["usd"]
    done = loop("cost", "show", "--sessions", "c..a")
    assert (2, True) == (done.returncode, "a comes before c" in done.stderr)


def test_what_was_spared_stands_beside_what_was_charged() -> None:
    """With the return on it."""
    add("a", ENGINEER, savings=(Saving(pattern="p", source="s", minutes=10, usd=4.0),))
    add("b", ENGINEER)
    assert {"minutes": 10.0, "usd": 4.0, "roi": 3.0} == shown()["spared"]
    assert "spared, as measured here: 10.0 min, $4.00; ROI 3" in loop("cost", "show").stdout


def test_the_machines_of_jobs_are_charged_whether_a_session_closed_or_not() -> None:
    """Half an hour of a host for 3 dollars an hour, in the journal of one that was killed."""
    ran = {"id": "j", "title": "", "state": "done", "tries": 1, "host": "h100", "usd_per_hour": 3.0}
    output = {**make_verify(make_check()).model_dump(), "jobs": [{**ran, "began": 0.0, "seconds": 1800.0}]}
    steps = (Opened(pid=1), STARTED, make_finished(output=output))
    folder = make_session(Path("../sessions").resolve(), "killed", *steps, status="")
    assert 1.5 == shown()["totals"]["gpu_usd"]
    (host,) = measured_use(folder.head(), folder, 60.0).hosts
    assert ("h100", 1800.0, 1.5) == (host.host, host.seconds, host.usd)


@pytest.mark.slow
def test_a_session_that_never_closed_is_charged_for_its_steps() -> None:
    """Two seconds in the journal of a killed one that was attended, at 50 dollars an hour; that is said."""
    folder = make_session(
        Path("../sessions").resolve(), "killed", Opened(pid=1), STARTED, make_finished(), STARTED, status=""
    )
    assert 0.0 == shown()["totals"]["engineer_usd"]
    folder.write_head(folder.head().model_copy(update={"attended": True}))
    found = shown()
    assert pytest.approx(2 / 3600 * 50) == found["totals"]["engineer_usd"]
    assert pytest.approx(2 / 60) == found["totals"]["minutes"]
    assert any("never closed" in note for note in found["notes"])


def test_a_torn_journal_loses_nothing_that_was_committed() -> None:
    """Cut in the middle of a line, or damaged: the bill stands, and the damage is named."""
    for name, tail in (("a", b'{"format": 1, "seq": 9'), ("b", b"nonsense\n")):
        folder = add(name, ENGINEER)
        with (folder.path / "journal.jsonl").open("ab") as file:
            file.write(tail)
    found = shown()
    assert 1.0 == found["totals"]["usd"]
    assert ["b"] == [one["folder"] for one in found["damaged"]]


def test_two_folders_with_one_session_count_once() -> None:
    """A copy is named, and not paid for twice."""
    folder = add("a", ENGINEER)
    shutil.copytree(folder.path, folder.path.with_name("a-copy"))
    found = shown()
    assert 0.5 == found["totals"]["usd"]
    assert [{"folder": "a-copy", "reason": "a copy of session a"}] == found["damaged"]


def test_a_session_of_another_format_is_named_and_left_out() -> None:
    """An older record without the fields of today is read as it is."""
    add("a", ENGINEER)
    newer = add("b", ENGINEER)
    text = (newer.path / "record.json").read_text()
    (newer.path / "record.json").write_text(text.replace('"format": 1', '"format": 9', 1))
    older = add("c", ENGINEER)
    fields = json.loads((older.path / "record.json").read_text())
    for name in ("ai", "energy_j", "gains", "notes"):
        del fields["bill"][name]
    del fields["bill"]["charges"][0]["basis"]
    del fields["sum"]
    (older.path / "record.json").write_text(json.dumps(fields))
    found = shown()
    assert 1.0 == found["totals"]["usd"]
    assert [("b", True)] == [(one["folder"], "format 9" in one["reason"]) for one in found["damaged"]]


@pytest.mark.slow
def test_no_sessions_cost_nothing() -> None:
    """And how to make one."""
    done = loop("cost", "show")
    assert (0, True) == (done.returncode, "loop run session" in done.stderr)
    assert 0.0 == shown()["totals"]["usd"]


@pytest.mark.slow
def test_the_recorded_history_to_the_cent_and_the_minute() -> None:
    """Rows added up by hand, 442 min after N+4, 734 after N+7A."""
    assert 0 == loop("sessions", "import", "history").returncode
    after = {name: shown("--sessions", f"N..{name}")["totals"] for name in ("N+4", "N+7A", "N+7G")}
    assert [442.0, 734.0, 764.0] == [one["minutes"] for one in after.values()]
    assert [1.47, 2.44, 3.84] == [one["gpu_usd"] for one in after.values()]
    assert [6.81, 10.06, 10.06] == [one["ai_usd"] for one in after.values()]
    assert [None, None, 25.0] == [one["engineer_usd"] for one in after.values()]
    assert [8.28, 12.5, 38.9] == [one["usd"] for one in after.values()]


@pytest.mark.slow
def test_a_recorded_session_without_any_cost_is_unknown_not_free(tmp_path: Path) -> None:
    """Not one figure is a zero: neither a resource, energy among them, nor the sum, nor the difference."""
    (tmp_path / "mine.yaml").write_text(
        "format: 1\nsource: mine\nsessions: [{id: a, minutes: 5, outcome: x}, {id: b, minutes: 9, outcome: x}]\n"
    )
    assert 0 == loop("sessions", "import", str(tmp_path / "mine.yaml")).returncode
    totals = shown("--sessions", "a")["totals"]
    assert {None} == {totals[name] for name in totals if name.endswith("usd")}
    assert None is shown("--sessions", "a", "--against", "b")["saved_against"]["usd"]
    against = loop("cost", "show", "--sessions", "a", "--against", "b").stdout
    assert "less than b: 4.0 min (44 %), dollars unknown" in against
    assert "$" not in against
    listed = json.loads(loop("sessions", "list", "--json").stdout)["sessions"]
    assert [None, None] == [one["usd"] for one in listed]


@pytest.mark.slow
def test_n_4_against_the_sessions_before_it() -> None:
    """Environments of 3, 67 and 60 minutes; N took 155 minutes and 3.19 dollars more."""
    assert 0 == loop("sessions", "import", "history").returncode
    against = {name: shown("--sessions", "N+4", "--against", name)["saved_against"] for name in ("N", "N+3")}
    assert (155.0, 3.19, 57.0) == tuple(against["N"][key] for key in ("minutes", "usd", "environment_minutes"))
    assert (42.0, 0.66, 64.0) == tuple(against["N+3"][key] for key in ("minutes", "usd", "environment_minutes"))
    assert (
        "its environment took 64 min less" in loop("cost", "show", "--sessions", "N+4", "--against", "N+3").stdout
    )


@pytest.mark.slow
def test_a_session_that_is_not_there_is_said_of_the_option_that_named_it() -> None:
    """Two options take sessions."""
    add("mine", ENGINEER)
    for option in ("--sessions", "--against"):
        assert f"{option} nope: no such session" in loop("cost", "show", option, "nope").stderr


@pytest.mark.slow
def test_a_session_against_another_in_percent() -> None:
    """155 of 180 minutes are 86.1 %, 3.19 of 3.60 dollars 88.6 %; of several each by itself, and their mean."""
    assert 0 == loop("sessions", "import", "history").returncode
    add("mine", ENGINEER)
    one = shown("--sessions", "N+4", "--against", "N")["saved_against"]
    assert (86.1, 88.6) == (one["minutes_percent"], one["usd_percent"])
    two = shown("--sessions", "N+3..N+4", "--against", "N")["saved_against"]
    assert [(113.0, 62.8), (155.0, 86.1)] == [(row["minutes"], row["minutes_percent"]) for row in two["rows"]]
    assert (134.0, 74.4) == (two["minutes"], two["minutes_percent"])
    text = loop("cost", "show", "--sessions", "N+3..N+4", "--against", "N").stdout
    assert "recorded-6c9386-n+4, less than N: 155.0 min (86 %), $3.19 (89 %)" in text
    assert "on average, less than N: 134.0 min (74 %)" in text
    assert 99.7 == shown("--sessions", "mine", "--against", "N")["saved_against"]["minutes_percent"]


def test_what_cost_more_than_before_is_less_by_a_negative_amount() -> None:
    """Minutes and dollars with their signs in front."""
    assert 0 == loop("sessions", "import", "history").returncode
    done = loop("cost", "show", "--sessions", "N", "--against", "N+4")
    assert "less than N+4: -155.0 min (-620 %), -$3.19 (-778 %)" in done.stdout


def test_rates_are_listed_with_their_age_and_where_they_come_from(tmp_path: Path) -> None:
    """An old one is marked; those that a session is charged at, too."""
    folder = make_project(tmp_path / "project")
    (folder / "rates.yaml").write_text(
        "format: 1\ngpu: mine\nwaiting: engineer\nrates:\n"
        "  - {name: mine, resource: gpu, usd_per_hour: 1.25, source: my invoice, as_of: 2020-02-29}\n"
    )
    found = json.loads(loop("cost", "rates", "--json", "--target", str(folder)).stdout)
    (mine,) = (rate for rate in found["rates"] if rate["name"] == "mine")
    assert (1.25, True, True, "my invoice") == tuple(
        mine[key] for key in ("usd_per_hour", "old", "charged_at", "source")
    )
    assert mine["age_days"] > 2000
    text = loop("cost", "rates", "--target", str(folder)).stdout
    assert "mine *" in text
    assert "my invoice" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("charged", "unknown", "cells"),
    [
        ({"ai": 0.12}, {"ai"}, ("sum", "1.0", "0.00", "0.1200+", "0.00", "0.1200+")),
        ({"ai": 0.12}, {"energy"}, ("sum", "1.0", "0.00", "0.1200", "0.00", "0.1200")),
        ({}, {"ai"}, ("sum", "1.0", "0.00", "?", "0.00", "?")),
        ({"gpu": 2.0}, {"ai"}, ("sum", "1.0", "2.00", "?", "0.00", "2.00+")),
    ],
)
def test_a_sum_that_leaves_something_out_has_a_plus(
    charged: dict[str, float], unknown: set[str], cells: tuple[str, ...]
) -> None:
    """One candidate of fifteen told what it cost, and the sum looked as if it were all."""
    sums = Totals(sessions=2, minutes=1.0, energy_j=None, charged=charged, unknown=frozenset(unknown))
    assert cells == row_of("sum", sums)
