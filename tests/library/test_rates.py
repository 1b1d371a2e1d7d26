"""The rate card and the history that ship with loop, and a command that another machine runs."""

import datetime
from pathlib import Path

import pytest

from loop.base.errors import DefinitionError
from loop.base.places import Project, find_project
from loop.library import definitions, hosted, trust
from loop.library.rates import rates
from loop.model.money import HourPrices, RateCard
from loop.money.bill import SessionUse, make_bill
from loop.session.recorded import read_histories
from tests.projects import make_project

CARD = """format: 1
gpu: mine
waiting: me
rates:
  - {name: me, resource: engineer, usd_per_hour: 80, source: s, as_of: 2026-01-01}
  - {name: mine, resource: gpu, usd_per_hour: PRICE, source: s, as_of: 2026-01-01}
"""
MACHINE = """machines:
  - {gpu: NVIDIA L4, cloud: gcp, region: us-central1, shape: g2-standard-4, PRICES, source: s, as_of: 2026-01-01}
"""


def card(folder: Path, text: str) -> RateCard:
    """The card of a project that has this one of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "target.yaml").touch()
    (folder / "rates.yaml").write_text(text)
    return rates(find_project(folder, folder))


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("0", "expected greater than 0"),
        ("700.0", "expected less than 500"),
        (".nan", "expected a finite number"),
        ("", "expected a valid number, got nothing"),
        ("free", "expected a valid number, got 'free'"),
    ],
)
def test_a_price_that_is_none_is_refused_where_it_stands(tmp_path: Path, price: str, said: str) -> None:
    """With file, line and column: catalogues write 0, 700 or nothing for "not offered"."""
    with pytest.raises(DefinitionError) as caught:
        card(tmp_path / "p", CARD.replace("PRICE", price))
    assert "rates.yaml:6:47: rates.1.usd_per_hour: " in caught.value.message
    assert said in caught.value.message


def test_an_own_card_goes_before_the_shipped_one(tmp_path: Path) -> None:
    """What it sets counts, what it does not set is still there, and it may name any of both."""
    text = CARD.replace("PRICE", "1.5").replace("gpu: mine", "gpu: aws/us-east-1/g5.xlarge")
    found = card(tmp_path / "p", text + MACHINE.replace("PRICES", "on_demand: 0.5"))
    prices = {
        name: rate.usd_per_hour
        for name in ("mine", "gcp/us-central1/g2-standard-4")
        if (rate := found.find_rate(name))
    }
    assert {"mine": 1.5, "gcp/us-central1/g2-standard-4": 0.5} == prices
    chosen = found.find_rate(found.gpu)
    assert chosen is not None
    assert ("NVIDIA A10G", 1.006) == (chosen.gpu, chosen.usd_per_hour)
    assert None is found.find_rate("gcp/us-central1/g2-standard-4/spot")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu: engineer", "2:6: gpu: expected a rate of gpu, got 'engineer', a rate of engineer"),
        ("waiting: history-l4", "2:10: waiting: expected a rate of engineer or ai, got 'history-l4'"),
        ("ai: history-l4", "2:5: ai: expected a rate of ai"),
    ],
)
def test_nobody_is_charged_at_the_rate_of_something_else(tmp_path: Path, text: str, said: str) -> None:
    """A GPU at an engineer's hour would be charged as a second engineer."""
    with pytest.raises(DefinitionError) as caught:
        card(tmp_path / "p", f"format: 1\n{text}\n")
    assert said in caught.value.message


DAY = datetime.date(2026, 11, 23)


def send(monkeypatch: pytest.MonkeyPatch, terms: str, **fields: object) -> None:
    """As if this command had been sent here."""
    told = hosted.Sender.model_validate({"name": "l4", "as_of": DAY, **fields})
    monkeypatch.setenv(hosted.SENDER_VARIABLE, told.to_json_text())
    monkeypatch.setenv(hosted.TERMS_VARIABLE, terms)


def hosted_card(folder: Path) -> RateCard:
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
    (made,) = make_bill(SessionUse(seconds=3600, device="cpu"), hosted_card(tmp_path)).charges
    assert (rate, pytest.approx(usd)) == (made.rate, made.usd)


def test_a_command_that_was_typed_here_has_the_card_alone(tmp_path: Path) -> None:
    """And nobody is charged for a processor of one's own."""
    assert hosted.read_sender() is None
    assert () == make_bill(SessionUse(seconds=3600, device="cpu"), hosted_card(tmp_path)).charges


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


def test_every_line_of_evidence_names_a_session_of_the_history(tmp_path: Path) -> None:
    """One with rows, or one that its reports mention."""
    (history,) = read_histories()
    known = {*(row.id for row in history.sessions), *history.mentioned}
    patterns = definitions.patterns(find_project(None, tmp_path))
    named = {(name, one.session) for name, read in patterns.items() for one in read.value.evidence}
    assert set() == {(name, session) for name, session in named if session not in known}
    assert {"N+7E", "N+7F", "October 13"} == {session for _, session in named} & set(history.mentioned)
