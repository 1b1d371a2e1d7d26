"""Which device a session runs on when nobody says, and workloads that are given by their sizes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from loop.base.errors import LoopError
from loop.model.target import Target
from loop.steps import setting
from tests.projects import make_project


def make_target(**devices: str) -> Target:
    """A target with a Python variant for each device."""
    variants = {
        name: {"kind": "python", "device": device, "module": "m", "function": "f"}
        for name, device in devices.items()
    }
    signature = {"inputs": {"x": "N"}, "outputs": {"output": "N"}}
    fields = {"reference": {"python": "m:f"}, "baseline": {"python": "m:f"}, "tolerance": {}, "dtypes": {}}
    named = {"format": 2, "name": "t", "function": "f", "signature": signature, "workloads": {"w": ({"N": 1},)}}
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("N=3 M=four", "M: expected a size of 0 or more, got 'four'"),
        ("N=3, K=4", "K: expected one of N, M, factor, dtype, values, weight, got an unknown name"),
        ("N=3", "M: expected a size, got nothing"),
        ("N=3 M=4 dtype=float64", "dtype: expected one of float32, got 'float64'"),
        ("N=3 M", "M: expected M=VALUE, got 'M'"),
    ],
)
def test_what_does_not_fit_is_named(text: str, said: str, tmp_path: Path) -> None:
    """With a workload that fits."""
    with pytest.raises(LoopError) as caught:
        setting.with_stated_workloads(setting.read_setting(make_project(tmp_path)), [text])
    assert f"--workloads {text!r}: {said}" == caught.value.message
    assert "as in --workloads 'N=3 M=5 dtype=float32'" == caught.value.hint
