"""Which device a session runs on when nobody says."""

from types import SimpleNamespace

import pytest

from loop.base.errors import LoopError
from loop.model.target import Target
from loop.steps import setting


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


def make_emulated() -> Target:
    """A target with a processor's variant and two for a GPU, one of which can be emulated."""
    made = make_target(ours="cpu", only="cuda").model_dump()
    build = {"compiler": "nvcc"}
    both = {"kind": "c_abi", "device": "cuda", "sources": ("k.cu",), "entry": "k", "build": build, "emulation": {}}
    return Target.model_validate({**made, "variants": {**made["variants"], "both": both}})


def test_what_a_gpu_is_missing_for_is_emulated_where_it_can_be() -> None:
    """All of it when nobody is named, those that are named otherwise; on a GPU nothing."""
    target = make_emulated()
    assert ("both",) == setting.choose_emulated((), target, "cpu")
    assert () == setting.choose_emulated(("ours",), target, "cpu")
    assert ("both",) == setting.choose_emulated(("ours", "both"), target, "cpu")
    assert () == setting.choose_emulated((), target, "cuda")
    assert ("ours",) == setting.choose_variants(("ours", "both"), target, "cpu")
    with pytest.raises(LoopError, match="only does not run on cpu"):
        setting.choose_variants(("only",), target, "cpu")


def test_a_variant_that_can_be_emulated_needs_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named alone, it runs where there is none; with a GPU it runs there."""
    for gpus, expected in (((), "cpu"), (("L4",), "cuda")):
        monkeypatch.setattr(setting, "machine", lambda gpus=gpus: SimpleNamespace(gpus=gpus))
        assert expected == setting.choose_device("auto", make_emulated(), ("both",))
