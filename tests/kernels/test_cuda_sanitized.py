"""A CUDA variant, emulated, with AddressSanitizer and UBSan: `loop kernels verify --sanitize` does them all."""

from pathlib import Path

import pytest

from loop.base.places import include_folder, project
from loop.base.processes import finish
from loop.gate.verify import Job, verify
from loop.library import targets
from loop.model.workloads import expand
from loop.workers.bench import Bench
from tests.targets import build_one


@pytest.mark.soak
def test_the_scalar_variant_has_nothing_to_hide(build_cache: Path, tmp_path: Path) -> None:
    """Right on a few shapes, and neither sanitizer has a word to say."""
    bundled = project(None, tmp_path)
    target = targets.target(bundled).value
    where = {"folder": bundled.target, "cache": build_cache / "builds", "include": include_folder()}
    with Bench(target=target, device="cpu", threads=2, sanitize=True, scratch=tmp_path, **where) as bench:
        (variant,) = bench.emulations(["fa1"]).values()
        quicker = variant.build.model_copy(update={"flags": (*variant.build.flags, "-O1")})
        variant = variant.model_copy(update={"build": quicker})
        side = bench.side("fa1", build_one(bench.folder, variant, bench.cache, "fa1"), emulated=True)
        wanted = [one for one in expand(target, ["edges"], "float16") if one.sizes["Sq"] < 40][:6]
        (found,) = finish(verify(bench, [Job(side, wanted, layouts=False)]))
    assert found.right, found.failures
    assert 6 <= len(found.checks)
