"""Cgroups of commands: found by their names, and taken for abandoned only where their owner has ended."""

import os
import subprocess
from pathlib import Path

import pytest

from loop.base import cgroups
from loop.base.processes import name_of


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the system's tree: files of it are plain files."""
    monkeypatch.setattr(cgroups, "_mounted", lambda: (tmp_path, "/"))
    return tmp_path


def made(folder: Path, owner: str, *pids: int) -> Path:
    """A cgroup of that owner with these processes."""
    room = folder / f"{cgroups._prefix()}{owner}"
    room.mkdir(parents=True)
    (room / cgroups.MEMBERS).write_text("".join(f"{pid}\n" for pid in pids))
    return room


def test_only_those_whose_owner_has_ended_are_abandoned(tree: Path) -> None:
    """Anywhere in the tree; a number that another process has now is another owner."""
    made(tree, name_of(os.getpid()))
    gone = made(tree / "user.slice" / "one.scope", "4194305-17")
    again = made(tree, f"{os.getpid()}-17")
    assert sorted([gone, again]) == sorted(cgroups.abandoned())


def test_those_of_another_pid_namespace_are_left_alone(tree: Path) -> None:
    """As of a container: their owners have other numbers here."""
    (tree / "loop-1-4194305-17").mkdir()
    (tree / "looping").mkdir()
    assert [] == cgroups.abandoned()


def test_without_a_kill_file_every_member_is_killed(tree: Path) -> None:
    """Before Linux 5.14; those in cgroups below count."""
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as two:
        room = made(tree, "4194305-17", one.pid)
        (room / "below").mkdir()
        (room / "below" / cgroups.MEMBERS).write_text(f"{two.pid}\n")
        assert {one.pid, two.pid} == set(cgroups.members(room))
        cgroups._kill(room, cgroups.members(room))
        assert [-9, -9] == [one.wait(20), two.wait(20)]


def test_one_write_kills_all(tree: Path) -> None:
    """Where the kernel has a file for it."""
    room = made(tree, "4194305-17", os.getpid())
    (room / cgroups.KILL).touch()
    cgroups._kill(room, [os.getpid()])
    assert "1" == (room / cgroups.KILL).read_text()


def test_without_version_2_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where a container does not show it."""
    monkeypatch.setattr(cgroups, "_mounted", lambda: None)
    cgroups.enter()
    assert (None, [], None) == (cgroups.own(), cgroups.abandoned(), cgroups.room_of(os.getpid()))
