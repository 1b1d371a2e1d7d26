"""Facts of a GPU come from that GPU: a manifest that lists another of its generation lends it none."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from loop.gate.model import DeviceOutput
from loop.model.profile import at_hand, same_card
from loop.profile.launch_limits import gpu_at_hand
from tests.makers import make_device

H200 = make_device("NVIDIA H200", bytes_per_s=4.8e12, flops_per_s={"float16": 989e12})
LISTED = {"sm_90": H200}


@pytest.mark.parametrize(
    ("same", "name", "driver_name"),
    [
        (True, "NVIDIA H100", "NVIDIA H100 80GB HBM3"),
        (False, "NVIDIA H100", "NVIDIA H100 PCIe"),
        (False, "NVIDIA H100", "NVIDIA H100 NVL"),
        (False, "NVIDIA H100", "NVIDIA GH200 480GB"),
        (False, "NVIDIA H100", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
        (True, "NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        (True, "NVIDIA A100", "NVIDIA A100-SXM4-80GB"),
        (True, "NVIDIA A100 PCIe 80GB", "NVIDIA A100 80GB PCIe"),
        (False, "NVIDIA A100 40GB", "NVIDIA A100-SXM4-80GB"),
        (False, "NVIDIA L4", "NVIDIA L40S"),
        (False, "NVIDIA A10", "NVIDIA A10G"),
        (True, "RTX 4090", "NVIDIA GeForce RTX 4090"),
        (False, "RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        (False, "Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation"),
    ],
)
def test_cards_are_told_apart_by_what_their_drivers_call_them(same: bool, name: str, driver_name: str) -> None:
    """Socket and memory in a name change nothing; any other word is another card."""
    assert same == same_card(name, driver_name)


@pytest.mark.parametrize(
    "driver",
    [
        make_device("NVIDIA H100 80GB HBM3"),
        make_device("NVIDIA GH200 480GB", bytes_per_s=4.02e12),
        make_device("NVIDIA H200 MIG 1g.18gb", sms=16, bytes_per_s=0.0),
        make_device("NVIDIA H200", sms=16),
    ],
)
def test_a_gpu_that_is_not_the_listed_one_is_told_by_its_driver(driver: Any) -> None:
    """Under its own name, with its own bandwidth, and without the peak that no driver tells."""
    assert driver == at_hand(LISTED, "9.0", driver.name, driver)
    seen = DeviceOutput(ok=True, message="", capability="9.0", name=driver.name, facts=driver)
    latest = {"environment.device": seen.model_dump(mode="json")}
    context = SimpleNamespace(latest=latest.get, bench=SimpleNamespace(target=SimpleNamespace(devices=LISTED)))
    assert driver == gpu_at_hand(cast(Any, context))


def test_the_listed_gpu_has_its_datasheet() -> None:
    """By name and multiprocessors; a generation that nobody lists has its driver's facts, or none."""
    assert H200 == at_hand(LISTED, "9.0", "NVIDIA H200", make_device("NVIDIA H200"))
    assert None is at_hand(LISTED, "8.0", "NVIDIA A100-SXM4-80GB", None)
    assert None is at_hand(LISTED, "9.0", "NVIDIA H100 80GB HBM3", None)
