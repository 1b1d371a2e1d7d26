"""`loop kernels verify --sanitize`: one word for the tools that there are."""

import pytest

from loop.base.screen import Screen
from loop.cli.bench import BenchRequest, Chosen, bench_pattern, choose
from loop.model.sanitizing import SanitizeOutput
from loop.session.shown import show_findings
from loop.steps.setting import read_setting
from tests.makers import make_finished
from tests.timing.test_section import make_run


def steps(device: str, *, sanitize: bool) -> list[str]:
    """What `verify` does of a compiled variant on that device."""
    on_gpu = device == "cuda"
    chosen = Chosen("cuda", ("small",)) if on_gpu else Chosen("cpu", (), ("small",))
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


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_without_a_gpu_emulated_builds_are_sanitized(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that can be emulated, where none is named."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    target = read_setting(None).target
    chosen = choose(BenchRequest(what="verify", device=device, sanitize=True, emulate=device == "auto"), target)
    assert ("cpu", target.emulated) == (chosen.device, chosen.emulated)


def test_findings_are_shown_with_the_command_that_shows_them_again(capsys: pytest.CaptureFixture[str]) -> None:
    """A row a variant; what was not looked at below."""
    runs = (make_run("memcheck"), make_run("racecheck", "unknown"))
    output = SanitizeOutput(
        ok=False, message="m", hint="again: loop", runs=runs, not_exercised=("racecheck: why",)
    )
    show_findings(
        [make_finished("sanitize", action="kernel.sanitize", output=output)], lambda variant, seed: "", Screen()
    )
    text = capsys.readouterr().out
    assert ["small", "clean", "unknown"] == next(line.split() for line in text.splitlines() if "small" in line)
    assert "not exercised: racecheck: why\nagain: loop\n" in text
