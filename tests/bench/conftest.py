"""One bench with a warm judge for all tests of this folder: importing torch takes seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.workers.bench import Bench
from tests.targets import ENTRIES, compiled, external, importable, open_bench, write_target


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the tiny target with every variant there is."""
    folder = tmp_path_factory.mktemp("tiny")
    variants = {name: compiled(name) for name in ENTRIES}
    variants["both_types"] = compiled("typed", dtypes=["float32", "float64"])
    variants["careless"] = compiled("fickle", deterministic=False)
    variants["luckless"] = compiled("restless", deterministic=False)
    variants["no_entry"] = compiled("nowhere")
    variants |= {name: importable(name) for name in ("double", "wrong_shape", "raises", "at_a_slow_clock")}
    variants["lost"] = importable("double", module="no_such_module")
    variants |= {"program": external("2"), "program_wrong": external("3"), "program_fails": external()}
    values = {"hole": {"x": {"nan_along": "N"}}}
    with open_bench(folder, write_target(folder, variants, values=values), build_cache) as made:
        yield made
