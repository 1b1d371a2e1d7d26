"""`loop cost` as a user types it: show, rates, keep-or-stop and pivot, over real session folders."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import UsageError
from loop.cli import ALL
from loop.cli.command import default_of
from loop.model.change import hosts_of
from loop.model.index import SessionRow
from loop.model.money import Charge, Unmeasured
from loop.model.record import Opened, Started
from loop.money.command import make_ledger, pivot, show_costs, show_rates
from loop.report.screen import Screen
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
    total = make_bill(charges=charges, usd=sum(charge.usd for charge in charges), **fields)
    folder.write_record(make_record(make_session_head(id=name), bill=total, seconds=36.0))
    return folder


def costs() -> dict[str, Any]:
    """Reply of `loop cost show --json`."""
    return show_costs(None).model_dump(mode="json")


def test_totals_by_resource_have_unknown_ai_as_null() -> None:
    """0.50 of an engineer in each of two sessions; AI is unknown, with a note, and not 0."""
    add("a", ENGINEER)
    add("b", ENGINEER)
    reply = costs()
    assert {"minutes", "gpu_usd", "ai_usd", "engineer_usd", "usd"} <= set(reply["totals"])
    totals = {name: reply["totals"][name] for name in ("minutes", "gpu_usd", "ai_usd", "engineer_usd", "usd")}
    assert {"minutes": 1.2, "gpu_usd": 0.0, "ai_usd": None, "engineer_usd": 1.0, "usd": 1.0} == totals
    assert "AI: not measured in 2 of 2 sessions (nobody read a log)" in reply["notes"]
    out = io.StringIO()
    show_costs(None).show(Screen(out, io.StringIO()))
    lines = out.getvalue().splitlines()
    assert "?" in lines[1]
    assert any("AI: not measured" in line for line in lines)


def test_the_machines_of_jobs_are_charged_whether_a_session_closed_or_not() -> None:
    """Half an hour of a host for 3 dollars an hour, in the journal of one that was killed."""
    ran = {"id": "j", "title": "", "state": "done", "tries": 1, "host": "h100", "usd_per_hour": 3.0}
    output = {**make_verify(make_check()).model_dump(), "jobs": [{**ran, "began": 0.0, "seconds": 1800.0}]}
    steps = (Opened(pid=1), STARTED, make_finished(output=output))
    folder = make_session(Path("../sessions").resolve(), "killed", *steps, status="")
    assert 1.5 == costs()["totals"]["gpu_usd"]
    (host,) = hosts_of(folder.finished())
    assert ("h100", 1800.0, 1.5) == (host.host, host.seconds, host.usd)


def test_a_session_that_never_closed_is_charged_for_its_steps() -> None:
    """The steps in its journal are charged, with a note: two attended seconds at 50 dollars an hour."""
    folder = make_session(
        Path("../sessions").resolve(), "killed", Opened(pid=1), STARTED, make_finished(), STARTED, status=""
    )
    assert 0.0 == costs()["totals"]["engineer_usd"]
    folder.write_head(folder.head().model_copy(update={"attended": True}))
    reply = costs()
    assert pytest.approx(2 / 3600 * 50) == reply["totals"]["engineer_usd"]
    assert pytest.approx(2 / 60) == reply["totals"]["minutes"]
    assert any("never closed" in note for note in reply["notes"])


def test_the_recorded_history_is_charged_to_the_cent_and_the_minute() -> None:
    """The expected sums were added up by hand."""
    assert 0 == loop("sessions", "import", "history").returncode
    totals = costs()["totals"]
    assert (764.0, 3.84, 10.06, 25.0, 38.9) == tuple(
        totals[name] for name in ("minutes", "gpu_usd", "ai_usd", "engineer_usd", "usd")
    )


def test_rates_are_listed_with_their_age_and_where_they_come_from(tmp_path: Path) -> None:
    """An old one is marked; those that a session is charged at, too."""
    folder = make_project(tmp_path / "project")
    (folder / "rates.yaml").write_text(
        "format: 1\ngpu: mine\nwaiting: engineer\nrates:\n"
        "  - {name: mine, resource: gpu, usd_per_hour: 1.25, source: my invoice, as_of: 2020-02-29}\n"
    )
    prices, out = show_rates(folder), io.StringIO()
    prices.show(Screen(out, io.StringIO()))
    (mine,) = (rate for rate in prices.model_dump(mode="json")["rates"] if rate["name"] == "mine")
    assert (1.25, True, True, "my invoice") == tuple(
        mine[key] for key in ("usd_per_hour", "old", "charged_at", "source")
    )
    assert mine["age_days"] > 2000
    lines = out.getvalue().splitlines()
    assert [] != [line for line in lines if "mine *" in line]
    assert [] != [line for line in lines if "my invoice" in line]
    assert all(len(line) <= 80 for line in lines)


def test_a_torn_journal_loses_nothing_that_was_committed() -> None:
    """A journal that is cut or damaged keeps its bill, and the damage is named."""
    for name, tail in (("a", b'{"format": 1, "seq": 9'), ("b", b"nonsense\n")):
        folder = add(name, ENGINEER)
        with (folder.path / "journal.jsonl").open("ab") as file:
            file.write(tail)
    reply = costs()
    assert 1.0 == reply["totals"]["usd"]
    assert ["b"] == [*reply["damaged"]]


OPTIONS = """\
format: 1
question: what next
value_usd: 1000
options:
  - {name: go on, usd: [150, 250], probability: 0.5}
  - {name: rewrite, usd: [250, 350]}
"""


KEEP = next(command for command in ALL if command.words == "cost keep-or-stop")


def keep(**fields: Any) -> str:
    """Output of `keep-or-stop`."""
    out = io.StringIO()
    values = {parameter.name: default_of(parameter) for parameter in KEEP.parameters} | fields
    assert 0 == KEEP.call(values, Screen(out, io.StringIO()))
    return out.getvalue()


def test_both_sides_the_break_even_and_the_decision_are_json() -> None:
    """Five hours of idling against a restart of 15 minutes, at one price an hour: break-even after these."""
    words = ("--idle-hours", "5", "--waiting", "nobody", "--restart-minutes", "15", "--json")
    done = loop("cost", "keep-or-stop", *words)
    assert 0 == done.returncode, done.stderr
    answer = json.loads(done.stdout)
    assert (4, "stop", 0.25) == (answer["schema_version"], answer["decision"], answer["break_even_hours"])
    assert [5.0, 0.25] == [answer[name] / answer["gpu_usd_per_hour"] for name in ("idle_usd", "stop_usd")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"idle_hours": -1}, "--idle-hours -1: expected a number from 0"),
        ({"idle_hours": float("nan")}, "--idle-hours nan: expected a number from 0"),
        ({}, "no restart was measured"),
        ({"idle_hours": None}, "for how long will the GPU idle?"),
    ],
)
def test_what_is_no_amount_is_wrong_usage(fields: dict[str, Any], message: str) -> None:
    """The error has the expected form and an example."""
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        keep(**{"idle_hours": 5, **fields})
    assert caught.value.hint


def test_options_are_weighed_and_what_is_unknown_is_said(tmp_path: Path) -> None:
    """A missing probability gives a break-even, not a guess."""
    file = tmp_path / "pivot.yaml"
    file.write_text(OPTIONS)
    answer = pivot(file, None).model_dump(mode="json")
    assert (3, "what next", "go on") == (answer["schema_version"], answer["question"], answer["best"])
    assert [[250.0, 350.0], None] == [option["expected_usd"] for option in answer["options"]]
    file.write_text(OPTIONS.replace("rewrite", "pivot to warp specialisation and tensor cores"))
    out = io.StringIO()
    pivot(file, None).show(Screen(out, io.StringIO()))
    text = out.getvalue()
    assert "2 sessions without measurable progress" in " ".join(text.split())
    assert "it pays from a probability of 25 to 35 %" in " ".join(text.split())
    assert [] == [line for line in text.splitlines() if len(line) > 80]


@pytest.mark.slow
def test_the_pattern_reads_options_beside_the_target(tmp_path: Path) -> None:
    """`loop run pattern roi-pivot`: stop rules and options are in the report."""
    folder = make_project(tmp_path / "project")
    assert 0 == loop("trust", str(folder)).returncode
    (folder / "pivot.yaml").write_text(OPTIONS)
    done = loop("run", "pattern", "roi-pivot", "--target", str(folder), "--json")
    assert 0 == done.returncode, done.stderr
    report = Path(json.loads(done.stdout)["report"]).read_text()
    assert "### Decisions" in report
    assert "expected $250.00 to $350.00" in report


UNKNOWN = {"ai": "nobody told"}


def session(name: str = "a", unknown: dict[str, str] = UNKNOWN, **fields: Any) -> SessionRow:
    """A session of a minute on a processor; its keywords beside fields: dollars by resource, and their basis."""
    usd, basis = fields.pop("usd", {}), fields.pop("basis", "measured")
    base: dict[str, Any] = {
        "started": None,
        "target": "attention",
        "plan": "quick",
        "device": "cpu",
        "status": "passed",
        "seconds": 60.0,
        "environment": {"processor": "x"},
        "charges": [
            {"resource": of, "rate": "r", "seconds": 60, "usd": it, "basis": basis} for of, it in usd.items()
        ],
        "usd": sum(usd.values()),
        "unmeasured": [{"resource": of, "reason": why} for of, why in unknown.items()],
    }
    return SessionRow.model_validate({"id": name, **base, **fields})


def test_the_return_is_on_what_sessions_run_here_cost() -> None:
    """Imported history does not count as cost of today's return."""
    saving = {"pattern": "p", "source": "s", "minutes": 4.0, "usd": 6.0}
    both = [session("n", recorded=True, usd={"gpu": 40.0}), session("a", usd={"engineer": 2.0}, savings=[saving])]
    ledger = make_ledger(both, {})
    assert (42.0, 4.0, 6.0, 2.0) == (ledger.totals.usd, ledger.spared_minutes, ledger.spared_usd, ledger.roi)
    assert None is make_ledger([session(savings=[saving])], {}).roi
    assert None is make_ledger([session(usd={"gpu": 1.0})], {}).roi
