"""Which device a session runs on when nobody says."""

from types import SimpleNamespace

import pytest

from loop.commands import setting
from loop.errors import LoopError
from loop.model.target import Target


def make_target(**devices: str) -> Target:
    """A target with a Python variant for each device."""
    variants = {
        name: {"kind": "python", "device": device, "module": "m", "function": "f"}
        for name, device in devices.items()
    }
    signature = {"inputs": {"x": "N"}, "output": "N"}
    fields = {"reference": {"python": "m:f"}, "baseline": {"python": "m:f"}, "tolerance": {}, "dtypes": {}}
    named = {"format": 1, "name": "t", "function": "f", "signature": signature, "workloads": {"w": ({"N": 1},)}}
    return Target.model_validate({**named, **fields, "variants": variants})


BOTH = make_target(ours="cpu", fast="cuda", eager="any")
WITHOUT_CUDA = make_target(ours="cpu", eager="any")


@pytest.mark.parametrize(
    ("gpus", "target", "variants", "expected"),
    [
        ((), BOTH, (), "cpu"),
        (("H200",), BOTH, (), "cuda"),
        (("H200",), BOTH, ("ours",), "cpu"),
        (("H200",), BOTH, ("fast",), "cuda"),
        (("H200",), WITHOUT_CUDA, (), "cpu"),
    ],
)
def test_auto_goes_where_the_variants_are_made_for(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[str, ...],
    target: Target,
    variants: tuple[str, ...],
    expected: str,
) -> None:
    """A GPU counts only when something was written for it; a named variant decides."""
    monkeypatch.setattr(setting, "machine", lambda: SimpleNamespace(gpus=gpus))
    assert expected == setting.choose_device("auto", target, variants)


def test_a_variant_for_a_gpu_without_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not silently run elsewhere."""
    monkeypatch.setattr(setting, "machine", lambda: SimpleNamespace(gpus=()))
    with pytest.raises(LoopError, match="no GPU"):
        setting.choose_device("auto", BOTH, ("fast",))
