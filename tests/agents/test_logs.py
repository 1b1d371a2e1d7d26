"""Agents' logs: what a session used, within half a per cent of what was counted by hand; unknown is never zero."""

import datetime
import json
import os
import threading
from pathlib import Path

import pytest

from loop.agents import logs
from loop.agents.lines import Log
from loop.agents.prices import price_list
from loop.model.metering import AiUse
from tests.agents.fixtures import CLAUDE, FIXTURES
from tests.agents.written import BEGUN, ENDED, HERE, OPUS, Fixture, said, write

PART = logs.Part((Path(HERE),), BEGUN, ENDED)
needs_prices = pytest.mark.skipif(price_list() is None, reason="no price list: pip install 'kernel-loop[ai]'")


def metered(fixture: Fixture, home: Path, *, priced: bool) -> AiUse:
    """What reading the logs of a fixture comes to."""
    write(home, fixture.files)
    found = logs.read(logs.places(home, {}), PART, price_list() if priced else None)
    assert found is not None
    return found


def test_there_are_fifty_fixtures_at_least() -> None:
    """Each with a name of its own."""
    assert len(FIXTURES) >= 50
    assert len(FIXTURES) == len({one.name for one in FIXTURES})


@needs_prices
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda one: one.name)
def test_the_cost_of_a_log_is_that_counted_by_hand(fixture: Fixture, tmp_path: Path) -> None:
    """Within half a per cent; a model without a price is named, and never costs nothing."""
    found = metered(fixture, tmp_path, priced=True)
    expected = None if fixture.dollars is None else pytest.approx(fixture.dollars / 1e6, rel=0.005)
    assert expected == found.usd
    assert found.usd != 0
    assert fixture.unpriced == found.unpriced
    assert all(model.usd is None or model.usd > 0 for model in found.models)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda one: one.name)
def test_the_tokens_of_a_log_are_those_counted_by_hand(fixture: Fixture, tmp_path: Path) -> None:
    """Exactly, with or without a price list; without one nothing has a price, and that is said."""
    found = metered(fixture, tmp_path, priced=False)
    assert fixture.tokens == sum(model.tokens.total for model in found.models)
    assert found.usd is None
    assert set(fixture.unpriced) <= set(found.unpriced)
    assert "pip install" in " ".join(found.notes)
    assert all(any(words in note for note in found.notes) for words in fixture.notes)


def test_logs_without_a_call_of_the_session_say_nothing(tmp_path: Path) -> None:
    """That is no use of zero: nobody knows which agent there was."""
    write(tmp_path, {CLAUDE: [said("a", OPUS, (9, 9), cwd="/elsewhere")]})
    assert None is logs.read(logs.places(tmp_path, {}), PART, None)
    assert None is logs.read(logs.places(tmp_path / "nobody", {}), PART, None)


def test_a_log_that_was_not_written_to_since_is_not_opened(tmp_path: Path) -> None:
    """Years of conversations cost nothing."""
    write(tmp_path, {CLAUDE: [said("a", OPUS, (9, 9))]})
    before = (BEGUN - datetime.timedelta(hours=1)).timestamp()
    os.utime(tmp_path / CLAUDE, (before, before))
    assert None is logs.read(logs.places(tmp_path, {}), PART, None)


def test_where_the_agents_say_that_they_keep_their_logs(tmp_path: Path) -> None:
    """CODEX_HOME and CLAUDE_CONFIG_DIR move them."""
    told = {"CODEX_HOME": str(tmp_path / "c"), "CLAUDE_CONFIG_DIR": str(tmp_path / "d")}
    expected = ["d/projects", "c/sessions", "c/archived_sessions"]
    assert expected == [str(one.relative_to(tmp_path)) for one in logs.places(tmp_path, told)]
    expected = [".claude/projects", ".config/claude/projects", ".codex/sessions", ".codex/archived_sessions"]
    assert expected == [str(one.relative_to(tmp_path)) for one in logs.places(tmp_path, {})]


def test_a_log_that_grows_while_it_is_read_is_read_to_where_it_ended(tmp_path: Path) -> None:
    """What is written meanwhile counts the next time, not twice and not in part."""
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps({"usage": n}) + "\n" for n in range(2000)))
    seen = []
    with path.open("a") as writer:
        for number, _ in Log(path).objects(b"usage"):
            seen.append(number)
            writer.write(json.dumps({"usage": "more"}) + "\n")
            writer.flush()
    assert list(range(1, 2001)) == seen


def test_a_log_that_is_cut_or_taken_away_while_it_is_read_ends_early(tmp_path: Path) -> None:
    """No error, and no line of it twice."""
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps({"usage": n, "pad": "x" * 500}) + "\n" for n in range(2000)))
    log, seen = Log(path), []
    for number, _ in log.objects(b"usage"):
        seen.append(number)
        if number == 5:
            path.write_text("")
            path.unlink()
    assert sorted(set(seen)) == seen
    assert list(Log(path).objects(b"usage")) == []
    missing = Log(path)
    assert [] == list(missing.objects(b""))
    assert missing.gone


def test_a_log_with_a_writer_at_work_never_yields_half_a_line(tmp_path: Path) -> None:
    """Another process appends in pieces all the time."""
    path, stop = tmp_path / "s.jsonl", threading.Event()
    path.write_text("")

    def append() -> None:
        line = json.dumps({"usage": "x" * 300}) + "\n"
        while not stop.is_set():
            with path.open("a") as file:
                file.write(line[:100])
                file.flush()
                file.write(line[100:])

    writer = threading.Thread(target=append)
    writer.start()
    try:
        found = [(one, log) for log in (Log(path) for _ in range(30)) for _, one in log.objects(b"usage")]
    finally:
        stop.set()
        writer.join()
    assert {300} <= {len(one["usage"]) for one, _ in found} | {300}
    assert 0 == sum(log.unreadable for _, log in found)
