"""Metadata servers of three clouds on a real socket: their answers and their failures."""

import time
from collections.abc import Iterator

import pytest

from loop.cloud.clouds import CLOUDS, NoReply, Watch, find_cloud, get_notice
from tests.fake_cloud import TROUBLES, FakeCloud, fake_cloud, servers

LATE_S = 5.0  # No test asserts a time; calls that would last 30 s without a limit must end before this.


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """A server for requests to all clouds; it answers 404 until a test sets its name."""
    with fake_cloud() as server:
        for name, value in servers(server).items():
            monkeypatch.setenv(name, value)
        yield server


def wait(watch: Watch, until: str) -> None:
    """Wait until something about a watch is true."""
    end = time.monotonic() + LATE_S
    while not getattr(watch, until):
        assert time.monotonic() < end, f"no {until}"
        time.sleep(0.01)


@pytest.mark.parametrize("name", CLOUDS)
def test_a_cloud_is_found_by_its_own_server(name: str, fake: FakeCloud) -> None:
    """No other cloud's server is taken for it."""
    fake.name = name
    assert name == find_cloud()


@pytest.mark.parametrize("name", CLOUDS)
def test_a_notice_is_read_and_its_absence_is_none(name: str, fake: FakeCloud) -> None:
    """The notice has its cloud, its kind and, if known, its time."""
    fake.name = name
    assert "" == get_notice(name)
    fake.noticed = True
    assert get_notice(name).startswith(name)


def test_an_event_of_azure_about_another_machine_is_no_notice(fake: FakeCloud) -> None:
    """Azure sends events to all machines of a set; freezes of the own machine do not count, either."""
    fake.name, fake.noticed, fake.others = "azure", True, True
    assert "" == get_notice("azure")


@pytest.mark.parametrize(
    ("name", "trouble"), [*(("gcp", trouble) for trouble in TROUBLES), ("aws", "500"), ("azure", "garbage")]
)
def test_an_answer_that_is_none_is_unknown_not_quiet(name: str, trouble: str, fake: FakeCloud) -> None:
    """Within its bound; a server that says 500 and TRUE is not believed."""
    fake.name, fake.trouble = name, trouble
    begun = time.monotonic()
    with pytest.raises(NoReply):
        get_notice(name, 0.2)
    assert time.monotonic() - begun < LATE_S


def test_a_watch_sees_a_notice_that_comes_later(fake: FakeCloud) -> None:
    """The watch finds the cloud by itself, and reading it does not block."""
    fake.name = "gcp"
    watch = Watch(poll_s=0.02).start()
    wait(watch, "is_settled")
    assert ("gcp", "") == (watch.cloud, watch.notice)
    fake.noticed = True
    wait(watch, "notice")
    assert "gcp preempts this machine" == watch.notice
    assert () == watch.explain_unwatched()


def test_a_server_that_falls_silent_for_long_is_said(fake: FakeCloud) -> None:
    """Its state is unknown after its last answer."""
    fake.name = "gcp"
    watch = Watch("gcp", poll_s=0.02).start()
    wait(watch, "is_settled")
    fake.trouble = "reset"
    wait(watch, "failure")
    assert () == watch.explain_unwatched()
    watch.close()
    watch._answered_at_s -= 60
    assert "preemption watch of gcp, for the last 6" in watch.explain_unwatched()[0]
