"""The bench of campaigns plays patches to kernels of this repository: they have to fit what is there."""

import yaml

from loop.base.places import shipped
from tests.bench import optimize_gpu
from tests.bench.optimize_pool import pool


def test_every_patch_fits_its_kernel() -> None:
    """Each text that a patch replaces is there once; on a GPU that is rented nobody finds out first."""
    for kernel in (*pool(), optimize_gpu.auto(), optimize_gpu.cpu()):
        for patch in kernel.patches:
            for old, _ in patch.texts if patch.file else ():
                text = kernel.files.get(patch.file)
                if text is None:
                    text = (shipped("kernels") / (kernel.copied or "") / patch.file).read_text()
                assert 1 == text.count(old), f"{kernel.name}: {patch.idea}: {old}"


def test_nothing_else_is_built_from_the_files_of_auto() -> None:
    """A file that is shared with another variant may not change, and no patch to it would be taken."""
    kernel = optimize_gpu.auto()
    manifest = yaml.safe_load(kernel.files["target.yaml"])
    assert [kernel.variant] == [*manifest["variants"]]
    assert {kernel.variant} == {one["variant"] for one in manifest["tuning"].values()}
