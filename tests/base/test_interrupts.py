"""A signal is noted when it comes, and seen where nothing is half done."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from loop.base import interrupts
from loop.base.errors import ExitCode, Stopped
from loop.base.interrupts import SIGNALS, raise_if_signalled, signals_as_flags, store_signal_number
from tests.conftest import ROOT


@pytest.mark.parametrize("number", SIGNALS)
def test_nothing_is_raised_before_somebody_looks(number: signal.Signals) -> None:
    """Then the signal is named."""
    before = signal.getsignal(number)
    with signals_as_flags():
        signal.raise_signal(number)
        done = sum(range(1000))
        with pytest.raises(Stopped, match=f"interrupted by {number.name}") as raised:
            raise_if_signalled()
    assert (499500, ExitCode.INTERRUPTED) == (done, raised.value.exit_code)
    assert before == signal.getsignal(number)


def test_one_that_nobody_saw_is_raised_at_the_end() -> None:
    """Of the outermost, which has put the handlers back."""
    passed = []

    def inner() -> None:
        with signals_as_flags():
            with signals_as_flags():
                signal.raise_signal(signal.SIGINT)
            passed.append("inner")

    with pytest.raises(Stopped):
        inner()
    assert ["inner"] == passed
    raise_if_signalled()


def test_none_is_lost_in_a_fork() -> None:
    """Python drops what a handler raises there."""

    def fork() -> None:
        with signals_as_flags():
            timer = threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            subprocess.run(["true"], check=True)
            timer.join()

    for _ in range(30):
        with pytest.raises(Stopped):
            fork()


def test_a_later_one_ends_the_process(tmp_path: Path) -> None:
    """Where nobody looks, because something hangs."""
    script = (
        "import signal, time; from loop.base import interrupts\n"
        "interrupts.SAME_SIGNAL_S = 0.2\n"
        "with interrupts.signals_as_flags():\n"
        "    signal.raise_signal(signal.SIGTERM); signal.raise_signal(signal.SIGTERM); print('both', flush=True)\n"
        "    time.sleep(0.3); signal.raise_signal(signal.SIGTERM); print('never')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (ExitCode.INTERRUPTED, "both\n") == (done.returncode, done.stdout)
    assert interrupts.SAME_SIGNAL_S > 0.3


def test_a_signal_that_a_library_swallowed_ends_the_command_all_the_same() -> None:
    """pydantic drops what a handler raises, and calls a valid file invalid: that error is not the command's."""
    script = """
import signal, sys
from loop.base.errors import UsageError
from loop import cli

def load():
    for number in cli.SIGNALS:
        signal.signal(number, cli._stop_on_signal)
    try:
        cli._stop_on_signal(signal.SIGTERM, None)
    except BaseException:
        pass  # As pydantic does.
    raise UsageError("target.yaml:7:13: a pattern", "mend it")

cli._run_command_line = load
sys.argv = ["loop", "status"]
cli.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == ExitCode.INTERRUPTED, ended.stderr
    assert "target.yaml" not in ended.stderr


def test_an_interrupt_while_the_command_line_is_imported_is_one_line() -> None:
    """No traceback: nothing has begun."""
    script = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from loop.cli import main
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ExitCode.INTERRUPTED, 1) == (ended.returncode, len(ended.stderr.splitlines()))


def test_a_signal_noted_before_the_work_keeps_it_from_beginning() -> None:
    """Else a session would start although it was told to end."""
    store_signal_number(signal.SIGTERM)
    begun = []
    with pytest.raises(Stopped), signals_as_flags():
        begun.append("work")
    interrupts._signal_state.number = 0
    assert not begun
