"""What is said before a session begins: its time and cost, and what is in no cost for want of a price."""

import io
import json
from typing import Any

import pytest

from loop.base.screen import Screen
from loop.learning import prediction
from loop.model.money import RateCard
from loop.model.plan import Predicted
from loop.model.record import SessionHead
from tests.makers import make_card, make_machine, make_session_head

KNOWN = Predicted(seconds=60.0, low_s=30.0, high_s=120.0, usd=0.6, low_usd=0.3, high_usd=1.2)


def card_of(gpu: str) -> RateCard:
    """A card whose price is that of this GPU."""
    card = make_card()
    rates = [one.model_copy(update={"gpu": gpu}) if one.resource == "gpu" else one for one in card.rates]
    return card.model_copy(update={"rates": tuple(rates)})


def head_on(*gpus: str, **fields: Any) -> SessionHead:
    """The head of a session on a GPU."""
    base = {"device": "cuda", "machine": make_machine(gpus=gpus), "predicted": KNOWN}
    return make_session_head(**{**base, **fields})


def shown(head: SessionHead, card: RateCard, *, as_json: bool = False) -> tuple[str, str]:
    """What `--dry-run` prints, and what it says besides."""
    out, err = io.StringIO(), io.StringIO()
    prediction.show_plan(head, card, Screen(out, err), as_json=as_json)
    return out.getvalue(), err.getvalue()


def test_a_gpu_without_a_price_is_named() -> None:
    """Its hours are in no dollar of the prediction: silence would say that they are free."""
    out, err = shown(head_on("NVIDIA H200"), card_of("NVIDIA L4"))
    assert "$0.60 ($0.30 to $1.20) without NVIDIA H200, of unknown price" in " ".join(out.split())
    assert "name it as `gpu:` in rates.yaml" in err
    out, _ = shown(head_on("NVIDIA H200"), card_of("NVIDIA L4"), as_json=True)
    assert "NVIDIA H200" == json.loads(out)["unpriced_gpu"]


@pytest.mark.parametrize("head", [head_on("NVIDIA L4"), head_on("NVIDIA H200", device="cpu")])
def test_a_gpu_that_is_priced_or_not_used_is_not(head: SessionHead) -> None:
    """Nothing is missing then."""
    out, err = shown(head, card_of("NVIDIA L4"))
    assert "$0.60 ($0.30 to $1.20); planned" in " ".join(out.split())
    assert "" == err
    assert None is json.loads(shown(head, card_of("NVIDIA L4"), as_json=True)[0])["unpriced_gpu"]
