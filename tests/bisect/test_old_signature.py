"""Commits whose manifest knows one number of heads, searched by today's, which has one of keys too."""

import re
from pathlib import Path

import pytest

from loop.base.places import shipped
from loop.library.definitions import read_file
from loop.model.target import Target
from loop.model.workloads import entry_of, expand, single
from tests.bisect import kernel_edits as edits
from tests.projects import loop
from tests.repository.test_reading import git

CHANGES = (
    (r"^.*(Hq: \d|One query a head).*\n", ""),
    (r", shared_heads", ""),
    (r"B Hq Sq D, k: B Hk Sk D, v: B Hk Sk D", "B H Sq D, k: B H Sk D, v: B H Sk D"),
    (r"H: \[Hq, Hk\], ", ""),
    (r"Hq: heads of queries, Hk: heads of keys", "H: heads"),
    (r"\bH[qk]\b", "H"),
)
"""What makes an earlier manifest of today's."""


def earlier(manifest: str) -> str:
    """A manifest as it was before heads could be shared: without the workloads and the property that need it."""
    for pattern, text in CHANGES:
        manifest = re.sub(pattern, text, manifest, flags=re.MULTILINE)
    return re.sub(r"^  decode:\n(?!    \w)", "", manifest, flags=re.MULTILINE)


def write(folder: Path, files: edits.Files) -> None:
    """A commit of a target's files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a change")


def test_workloads_keep_their_names_and_values(tmp_path: Path) -> None:
    """What sessions recorded of them is known again, and their entries are read."""
    (tmp_path / "target.yaml").write_text(earlier(edits.pristine()[edits.MANIFEST]))
    old = read_file(tmp_path / "target.yaml", Target).value
    new = read_file(shipped("kernels/attention") / "target.yaml", Target).value
    assert {"B", "H", "Sq", "Sk", "D"} == set(old.signature.dimensions)
    known = {one.name: one for one in expand(new, new.workloads, "float32")}
    for one in expand(old, old.workloads, "float32"):
        assert one.seed == known[one.name].seed
        again = single(new, entry_of(new.signature, one), "float32", one.seed - known[one.name].seed)
        assert known[one.name] == again


@pytest.mark.slow
def test_a_wrong_commit_after_the_change_is_found_from_before_it(tmp_path: Path) -> None:
    """The good end has the earlier signature, and so have the kernels that are called with today's tensors."""
    folder, files = tmp_path / "attention", edits.pristine()
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, {**files, edits.MANIFEST: earlier(files[edits.MANIFEST])})
    good = git(folder, "rev-parse", "HEAD")
    write(folder, files)
    edits.replaced(edits.BINDINGS, "problem.scale = static", "problem.scale = 1.1f * static")(files)
    write(folder, files)
    wrong = git(folder, "rev-parse", "HEAD")
    edits.added("// The last one.\n")(files)
    write(folder, files)
    loop("trust", str(folder))
    asked = ("--metric", "correctness", "--workloads", "B=1 H=2 S=9 D=8")
    found = loop("bisect", "--good", good, "--variant", "cpu", *asked, "--target", str(folder), "--json")
    assert wrong in found.stdout, found.stdout + found.stderr
