"""A program that is a variant: what is said where it does not run."""

from pathlib import Path

import pytest

from loop.calls.call import Call, CommandTerms, Refused, TensorFile
from loop.calls.external import External


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (("./gone",), "cannot run ./gone: No such file or directory"),
        (("sh", "-c", "kill -9 $$"), "killed by signal 9"),
        (("sh", "-c", "echo no room >&2; exit 3"), "exit 3: no room"),
    ],
)
def test_how_a_program_ended_is_said(run: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """It is refused: nothing of loop crashed."""
    output = TensorFile("output", str(tmp_path / "y.bin"), (1,), "float32")
    with pytest.raises(Refused) as refused:
        External(CommandTerms(run, {}), str(tmp_path)).prepare(Call("k", "float32", (), output, {}, ())).run()
    assert said == str(refused.value)
