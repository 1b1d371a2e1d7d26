"""Programs on the PATH in place of NVIDIA's: they start the worker, then write a recorded log."""

from pathlib import Path

import pytest

SCRIPT = """#!/bin/sh
here=$(dirname "$0")
echo "$(basename "$0") $*" >> "$here/calls"
tool=$(basename "$0") log=/dev/null
while [ $# -gt 0 ]; do
  case "$1" in
    --tool) tool=$2; shift 2;;
    --log-file) log=$2; shift 2;;
    --csv) shift;;
    --*) shift 2;;
    *) break;;
  esac
done
[ -f "$here/$tool.instead" ] || "$@"
code=$?
[ -f "$here/$tool.log" ] && cat "$here/$tool.log" > "$log"
[ -f "$here/$tool.code" ] && exit "$(cat "$here/$tool.code")"
exit $code
"""


class FakeTool:
    """A program that comes before all others of its name on the PATH."""

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.folder = name, folder
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(SCRIPT)
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def says(self, log: str, code: int | None = None, tool: str | None = None, *, instead: bool = False) -> None:
        """Print this log as that tool from now on, exit with `code`; `instead`: start no worker."""
        name = tool or self.name
        (self.folder / f"{name}.log").write_text(log)
        if code is not None:
            (self.folder / f"{name}.code").write_text(str(code))
        if instead:
            (self.folder / f"{name}.instead").touch()

    @property
    def calls(self) -> list[str]:
        """The command lines it was started with."""
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.is_file() else []
