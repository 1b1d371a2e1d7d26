"""Builds of Python variants: their files, the copy under its hash, and whether two of them differ."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from loop.builds.build import BuildFailed, build_python, find_build_by_id, find_used_files
from loop.builds.resources import is_same_build
from loop.calls.call import FunctionTerms, Refused
from loop.calls.torch_call import Importable
from loop.model.measurement import Build
from loop.model.target import PythonVariant

SCALE = '''"""Scales."""

import torch

TWO = 2


def first(x):
    """Doubles."""
    return x * TWO


def scale(x):
    return first(x)
'''
OTHERS = {
    "helper.py": "",
    "unused.py": "",
    "chain.py": "import helper",
    "parts/__init__.py": "from . import inner",
    "parts/inner.py": "",
    "parts/tile.py": "from ..helper import x",
    "kernel.cu": '#include "kernel.cuh"\n',
    "kernel.cuh": "",
    "answers/one.py": "import beside\nimport helper",
    "answers/beside.py": "",
}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def build_of(folder: Path, cache: Path, text: str = SCALE) -> Build:
    """The build of one file that holds this."""
    variant = PythonVariant(kind="python", device="cpu", module="scale", function="scale")
    return build_python("ours", variant, write(folder, {"scale.py": text}), cache)


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import torch\nimport os.path", []),
        ("import helper", ["helper.py"]),
        ("def f():\n    from helper import g", ["helper.py"]),
        ("import chain", ["chain.py", "helper.py"]),
        ("import parts", ["parts/__init__.py", "parts/inner.py"]),
        ("from parts import tile", ["helper.py", "parts/__init__.py", "parts/inner.py", "parts/tile.py"]),
        ("SOURCE = 'kernel.cu'", ["kernel.cu", "kernel.cuh"]),
        ("import helper\n)", []),
        ("open('../secret'); open('/etc/passwd'); open('\\0')", []),
    ],
    ids=["packages", "module", "in a function", "chain", "package", "from it", "text", "no syntax", "outside"],
)
def test_a_variant_is_made_of_what_it_imports_and_names(tmp_path: Path, text: str, imported: list[str]) -> None:
    """Imported and named files of the target's folder are found without running code."""
    folder = write(tmp_path / "target", {**OTHERS, "scale.py": text})
    (tmp_path / "secret").write_text("")
    assert (*imported, "scale.py") == find_used_files(["scale"], folder)


def test_the_copy_is_found_by_its_hash_as_long_as_it_holds_the_same(tmp_path: Path) -> None:
    """The target's place and unused files do not matter; a damaged copy is made again."""
    cache = tmp_path / "cache"
    first = build_of(write(tmp_path / "one", {"unused.py": ""}), cache)
    second = build_of(tmp_path / "two", cache)
    assert (first.build_id, False, True) == (second.build_id, first.cached, second.cached)
    assert first.build_id != build_of(tmp_path / "one", cache, SCALE + "\n").build_id
    copy = Path(first.library) / "scale.py"
    assert SCALE == copy.read_text()
    for damage in ("edited", "more", "a link"):
        if damage == "a link":
            copy.unlink()
            copy.symlink_to(tmp_path / "two" / "scale.py")
        else:
            (copy if damage == "edited" else copy.with_name("torch.py")).write_text("x = 1")
        assert find_build_by_id("ours", first.build_id, cache) is None
        assert not build_of(tmp_path / "two", cache).cached
        cached = find_build_by_id("ours", first.build_id, cache)
        assert cached is not None
        assert (first.library, True, False) == (cached.library, cached.cached, cached.compiled)
        assert ["scale.py"] == [path.name for path in copy.parent.iterdir()]


@pytest.mark.parametrize(
    ("text", "message"), [("def f(:\n", r"^scale\.py:1:7: invalid syntax"), ("x = '\0'", r"^scale\.py.*null")]
)
def test_what_is_no_python_fails_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    """The message has a compiler's form; a missing file fails too."""
    with pytest.raises(BuildFailed, match=message):
        build_of(tmp_path, tmp_path / "cache", text)
    variant = PythonVariant(kind="python", device="cpu", module="gone.py", function="scale")
    with pytest.raises(BuildFailed, match=r"gone\.py: no such file"):
        build_python("ours", variant, tmp_path, tmp_path / "cache")


FIRST, SECOND = SCALE.index("def first"), SCALE.index("def scale")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (SCALE + "\n# nothing but a comment\n", "the same"),
        (SCALE.replace("Doubles.", "Twice.").replace("(x)", "( x )"), "the same"),
        (SCALE.replace('    """Doubles."""\n', ""), "the same"),
        (SCALE[:FIRST] + SCALE[SECOND:] + "\n\n" + SCALE[FIRST:SECOND], None),
        (SCALE.replace("x * TWO", "x + x"), None),
        (SCALE.replace("TWO = 2", "TWO = 2.0"), None),
        (SCALE + "\n\ndef first(x):\n    return x\n", None),
    ],
    ids=["comment", "spacing", "docstring", "order", "an operation", "a constant", "defined twice"],
)
def test_comments_and_order_are_told_from_statements(tmp_path: Path, text: str, word: str | None) -> None:
    """An edit of comments or order alone counts like layout: a gain by it is luck."""
    cache = tmp_path / "cache"
    assert (word is not None) == is_same_build(
        build_of(tmp_path / "old", cache), build_of(tmp_path / "new", cache, text)
    )


def test_a_module_that_is_not_in_its_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module missing in an old copy would be imported from today's folder: that is refused."""
    monkeypatch.setattr(sys, "path", [str(write(tmp_path / "today", {"renamed.py": SCALE})), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    output = build_of(tmp_path / "then", tmp_path / "cache")
    with pytest.raises(Refused, match=r"renamed is not what was built, but .*today/renamed\.py"):
        Importable(FunctionTerms("renamed:scale", folder=output.library), "cpu")
    monkeypatch.delitem(sys.modules, "renamed")
