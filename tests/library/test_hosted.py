"""What a command that was sent to another machine is told: price, terms, target, trust."""

import datetime
from pathlib import Path

import pytest

from loop.base.places import Project
from loop.library import hosted, trust
from loop.library.rates import rates
from loop.model.money import HourPrices, RateCard
from loop.money.bill import Used, charge
from tests.projects import make_project

DAY = datetime.date(2026, 11, 23)


def send(monkeypatch: pytest.MonkeyPatch, terms: str, **fields: object) -> None:
    """As if this command had been sent here."""
    told = hosted.Hosted.model_validate({"name": "l4", "as_of": DAY, **fields})
    monkeypatch.setenv(hosted.VARIABLE, told.as_text())
    monkeypatch.setenv(hosted.TERMS, terms)


def card(folder: Path) -> RateCard:
    """The card of a project."""
    return rates(Project(folder, folder / "sessions", bundled=False))


@pytest.mark.parametrize(
    ("terms", "usd", "rate"),
    [("gcp spot", 0.28, "l4/spot"), ("aws on_demand", 0.7, "l4/on_demand"), ("", 0.7, "l4/on_demand")],
)
def test_the_hosts_price_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terms: str, usd: float, rate: str
) -> None:
    """For every hour of the machine, on its processor too, by what its cloud says; else the dearer price."""
    send(monkeypatch, terms, prices=HourPrices(on_demand=0.7, spot=0.28))
    (made,) = charge(Used(seconds=3600, device="cpu"), card(tmp_path)).charges
    assert (rate, pytest.approx(usd)) == (made.rate, made.usd)


def test_a_command_that_was_typed_here_has_the_card_alone(tmp_path: Path) -> None:
    """And nobody is charged for a processor of one's own."""
    assert hosted.hosted() is None
    assert () == charge(Used(seconds=3600, device="cpu"), card(tmp_path)).charges


def test_what_the_sender_allowed_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These very definitions, and no others."""
    folder = make_project(tmp_path / "project")
    project = Project(folder, folder / "sessions", bundled=False)
    send(monkeypatch, "", trusted=[trust.definition_hash(project)])
    assert trust.is_trusted(project)
    (folder / "target.yaml").write_text(
        (folder / "target.yaml").read_text().replace("functions:scale", "functions:other")
    )
    assert not trust.is_trusted(project)
