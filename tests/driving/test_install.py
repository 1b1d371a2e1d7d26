"""`loop agents install`, and with `--remove`: our part of files, and nothing else of them."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.base.errors import UsageError
from loop.cli import app
from loop.driving.skill import BEGIN, END

SKILLS = (".agents/skills/loop/SKILL.md", ".claude/skills/loop/SKILL.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of a user, with a page for agents of its own."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "AGENTS.md").write_text("# Ours\n\nRun the tests.\n")
    return made


def call(verb: str, folder: Path, *words: str) -> dict[str, str]:
    """Run the command for programs; what becomes of each file."""
    done = CliRunner().invoke(app, ["agents", verb, str(folder), "--json", *words], catch_exceptions=True)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    told = json.loads(done.stdout)
    assert ("--yes" in words) == told["written"]
    return {os.path.relpath(one["file"], folder): one["change"] for one in told["files"]}


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_nothing_is_written_unasked(folder: Path) -> None:
    """Without `--yes`, and with nobody to ask, it only says what it would do."""
    before = content(folder)
    assert {SKILLS[0]: "made", SKILLS[1]: "made", "AGENTS.md": "updated"} == call("install", folder)
    done = CliRunner().invoke(app, ["agents", "install", str(folder)])
    assert (2, True) == (done.exit_code, "--yes" in done.stderr)
    assert 3 == done.stdout.count("would be ")
    assert before == content(folder)


@pytest.mark.parametrize("page", [b"# Ours\n\nRun the tests.\n", b"abc", b"abc\r\ndef", b"abc\n\n", b"\n", b""])
def test_twice_is_once_and_removing_gives_back_what_was_there(folder: Path, page: bytes) -> None:
    """Byte by byte, with all folders that were made for it."""
    (folder / "AGENTS.md").write_bytes(page)
    before = content(folder)
    call("install", folder, "--yes")
    after = content(folder)
    assert {*before, *SKILLS} == set(after)
    assert {"unchanged"} == set(call("install", folder, "--yes").values())
    assert after == content(folder)
    assert {SKILLS[0]: "removed", SKILLS[1]: "removed", "AGENTS.md": "updated"} == call(
        "install", folder, "--remove", "--yes"
    )
    assert before == content(folder)
    assert ["AGENTS.md"] == os.listdir(folder)
    assert {"not there"} == set(call("install", folder, "--remove", "--yes").values())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_our_part_is_written_anew(folder: Path, end: str) -> None:
    """What stands before and after it stays, with the line ends of the file."""
    page = folder / "AGENTS.md"
    page.write_bytes(f"# Ours{end}{end}{BEGIN}{end}old words{end}{END}{end}{end}## More{end}".encode())
    assert "updated" == call("install", folder, "--yes")["AGENTS.md"]
    text = page.read_bytes().decode()
    assert text.startswith(f"# Ours{end}{end}{BEGIN}{end}## Kernels")
    assert text.endswith(f"{END}{end}{end}## More{end}")
    assert "old words" not in text
    assert text.count("\n") == text.count(end)
    call("install", folder, "--remove", "--yes")
    assert f"# Ours{end}{end}## More{end}" == page.read_bytes().decode()


def test_words_of_the_user_below_the_skill_stay(folder: Path) -> None:
    """The skill is ours up to its mark."""
    call("install", folder, "--yes")
    skill = folder / SKILLS[0]
    ours = skill.read_text()
    skill.write_text(ours.replace("you propose", "YOU PROPOSE") + "\nMine: use cluster A.\n")
    assert "updated" == call("install", folder, "--yes")[SKILLS[0]]
    assert ours + "\nMine: use cluster A.\n" == skill.read_text()


def test_lines_of_the_user_are_never_joined(folder: Path) -> None:
    """Where the blank line above our part is gone, its line end is the user's."""
    page = folder / "AGENTS.md"
    page.write_text(f"one\n{BEGIN}\nold\n{END}\ntwo\n")
    call("install", folder, "--remove", "--yes")
    assert "one\ntwo\n" == page.read_text()


def test_words_of_the_user_above_the_skill_stay(folder: Path) -> None:
    """A field that clients read, such as which tools it may use; what we wrote goes alone."""
    call("install", folder, "--yes")
    skill = folder / SKILLS[0]
    ours = skill.read_text()
    mine = ours.replace("---\n", "---\nallowed-tools: Bash\n", 1)
    skill.write_text(mine.replace("you propose", "YOU PROPOSE"))
    assert "updated" == call("install", folder, "--yes")[SKILLS[0]]
    assert mine == skill.read_text()
    assert "updated" == call("install", folder, "--remove", "--yes")[SKILLS[0]]
    assert "allowed-tools: Bash" in skill.read_text()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (SKILLS[1], "---\nname: loop\n---\nsomebody else's", "is not loop's"),
        ("AGENTS.md", f"{BEGIN}\nno end\n", "not one pair"),
        ("AGENTS.md", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n", "not one pair"),
        ("AGENTS.md", b"\xff\xfe", "UTF-8"),
    ],
)
def test_what_it_does_not_understand_it_does_not_touch(
    folder: Path, file: str, text: str | bytes, said: str
) -> None:
    """Nothing is written at all, and the file is named."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    before = content(folder)
    with pytest.raises(UsageError, match=said) as caught:
        call("install", folder, "--yes")
    assert caught.value.hint
    assert before == content(folder)


def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    """A link inside it is followed, and stays one."""
    (tmp_path / "elsewhere").mkdir()
    (folder / ".claude").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="leads out"):
        call("install", folder, "--yes")
    (folder / ".claude").unlink()
    (folder / "AGENTS.md").rename(folder / "CLAUDE.md")
    (folder / "AGENTS.md").symlink_to("CLAUDE.md")
    call("install", folder, "--yes")
    assert (folder / "AGENTS.md").is_symlink()
    assert BEGIN in (folder / "CLAUDE.md").read_text()


def test_other_folders_of_skills_may_be_named(folder: Path) -> None:
    """The section of the page leads to the first of them."""
    call("install", folder, "--yes", "--skills", ".codex/skills")
    assert (folder / ".codex/skills/loop/SKILL.md").is_file()
    assert not (folder / ".claude").exists()
    assert "(.codex/skills/loop/SKILL.md)" in (folder / "AGENTS.md").read_text()
