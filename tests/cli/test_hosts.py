"""`loop hosts setup` of a label: each of its machines, and one document about them."""

import json
from pathlib import Path

import pytest

from loop.base.errors import WorkFailed
from loop.base.screen import Screen
from loop.cli import hosts
from loop.jobs.hosts import Host, Listed

READY = {"python": "3.11.2", "torch": "", "gpus": "", "driver": "", "lacks": ()}


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Two machines with one label; those in the set that is given cannot be set up."""
    fails = set[str]()
    host = Host.model_validate({"ssh": "there", "labels": ("mine",)})
    found = {name: Listed(name, host, tmp_path / "hosts.yaml") for name in ("a", "b")}
    monkeypatch.setattr("loop.jobs.hosts.hosts", lambda project: found)

    def set_up(one: Listed, screen: Screen) -> hosts.SetUp:
        if one.name in fails:
            raise WorkFailed(f"{one.name}: pip failed")
        screen.say(f"{one.name}: ready")
        return hosts.SetUp.model_validate({"host": one.name, **READY})

    monkeypatch.setattr(hosts, "_set_up", set_up)
    return fails


def test_machines_of_a_label_are_one_document(named: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With a machine each; what is said meanwhile goes to stderr."""
    assert 0 == hosts.set_up("mine", None, Screen(), as_json=True)
    said = capsys.readouterr()
    assert ["a", "b"] == [one["host"] for one in json.loads(said.out)["hosts"]]
    assert "a: ready\nb: ready\n" == said.err


def test_one_that_fails_keeps_no_other_from_being_set_up(
    named: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error is that of the command."""
    named.add("a")
    with pytest.raises(WorkFailed, match="a: pip failed"):
        hosts.set_up("mine", None, Screen(), as_json=True)
    said = capsys.readouterr()
    assert ("", "b: ready\n") == (said.out, said.err)
