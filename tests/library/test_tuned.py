"""Writing best values into a manifest: the values change, and nothing else."""

import pytest
import yaml

from loop.base.errors import LoopError
from loop.library.tuned import write_best

MANIFEST = """# before
tuning:
  tile:  # a comment
    values: {rows: [1, 2]}
    best:
      sm_89: {rows: 1, held: true}   # provisional
      sm_90: {rows: 1, held: true}
    title: after
  other:
    best: {cpu: {rows: 1, held: false}}  # inline
  block:
    best:
      cpu:
        rows: 3
        held: true
# the end
variants: {}
"""


@pytest.mark.parametrize(
    ("name", "device"), [("tile", "sm_89"), ("tile", "sm_90"), ("other", "cpu"), ("block", "cpu")]
)
def test_values_are_replaced_in_their_place(name: str, device: str) -> None:
    """Read back they are the new ones; everything else is the same, comments outside of `best` too."""
    made = write_best(MANIFEST, name, device, {"rows": 64, "held": False})
    expected = yaml.safe_load(MANIFEST)
    expected["tuning"][name]["best"][device] = {"rows": 64, "held": False}
    assert expected == yaml.safe_load(made)
    assert {"# before", "# a comment", "# the end"} <= {*made.replace("tile:  ", "\n").splitlines()}


def test_what_cannot_be_written_without_harm_is_refused() -> None:
    """Another part of the manifest points there: nothing is written, and the values are said."""
    manifest = "tuning:\n  tile:\n    best: {sm_90: &a {rows: 1}}\nelsewhere: *a\n"
    with pytest.raises(LoopError, match=r"tuning\.tile\.best\.sm_90 could not be put in") as told:
        write_best(manifest, "tile", "sm_90", {"rows": 2})
    assert "write them in by hand: {rows: 2}" == told.value.hint
