"""Wheel and sdist carry the definitions, and a program installed from the wheel finds them."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

SHIPPED = (
    "patterns/baseline-first.yaml",
    "kernels/attention/target.yaml",
    "kernels/attention/cpu/bindings.cpp",
    "kernels/attention/components.py",
    "kernels/attention/faults.py",
    "kernels/attention/parts.h",
    "kernels/include/loop_kernel.h",
    "templates/report.md.j2",
    "sessions/plans/baseline.yaml",
    "sessions/history/cudadent42.yaml",
    "sessions/rates.yaml",
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist, built without the network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == child.returncode, child.stdout + child.stderr
    return folder


@pytest.mark.slow
def test_the_wheel_carries_what_ships_inside_the_package(dist: Path) -> None:
    """Everything lies under loop/_data, and no session of this checkout travels along."""
    names = set(zipfile.ZipFile(next(dist.glob("*.whl"))).namelist())
    assert set() == {f"loop/_data/{name}" for name in SHIPPED} - names
    assert "loop/schema/pattern.json" in names
    assert [] == [name for name in names if "journal" in name and name.endswith(".jsonl")]
    assert {"loop", "kernel_loop-0.2.0.dist-info"} == {name.split("/")[0] for name in names}


@pytest.mark.slow
def test_the_sdist_can_be_tested(dist: Path) -> None:
    """It holds sources, definitions and tests."""
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set() == {*SHIPPED, "loop/cli/__init__.py", "tests/conftest.py", "constraints.txt"} - names


@pytest.mark.slow
def test_an_editable_wheel_points_to_the_checkout(tmp_path: Path) -> None:
    """`pip install -e .` builds it, also with Python kernels in the tree."""
    code = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == child.returncode, child.stdout + child.stderr
    wheel = zipfile.ZipFile(next(tmp_path.glob("*.whl")))
    assert str(ROOT) == wheel.read("_kernel_loop.pth").decode().strip()


@pytest.mark.slow
def test_an_installed_wheel_finds_its_definitions(dist: Path, tmp_path: Path) -> None:
    """Installed without the checkout, the catalogue and the kernels are there."""
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    code = "import sys; sys.argv[1:] = ['patterns', 'check']; from loop.cli import main; main()"
    environment = {"PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert (0, "target: the bundled one (kernels/attention)\n") == (child.returncode, child.stderr)
    assert "no complaints" in child.stdout
