"""`loop kernels verify --sanitize`: one word for the tools that there are."""

import pytest

from loop.cli.bench import BenchRequest, ChosenVariants, bench_pattern
from loop.steps.setting import read_setting


def steps(device: str, *, sanitize: bool) -> list[str]:
    """What `verify` does of a compiled variant on that device."""
    on_gpu = device == "cuda"
    chosen = ChosenVariants("cuda", ("small",)) if on_gpu else ChosenVariants("cpu", (), ("small",))
    request = BenchRequest("verify", ("small",), sanitize=sanitize)
    return [step.id for step in bench_pattern(request, read_setting(None).target, chosen).steps]


@pytest.mark.parametrize(
    ("device", "sanitize", "expected"),
    [
        ("cuda", True, ["build", "verify", "sanitize", "explain"]),
        ("cuda", False, ["build", "verify", "explain"]),
        ("cpu", True, ["build", "emulate", "explain"]),
        ("cpu", False, ["build", "emulate", "explain"]),
    ],
)
def test_a_gpu_has_tools_of_its_own(device: str, sanitize: bool, expected: list[str]) -> None:
    """Under the emulator the build is another one instead."""
    assert expected == steps(device, sanitize=sanitize)
