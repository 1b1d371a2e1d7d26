"""Signatures: their dimensions, and names that no tensor has."""

import pytest
from pydantic import ValidationError

from loop.model.signature import Signature


def test_sizes_and_dimensions_are_one_list() -> None:
    """A size that only the generator is given is shrunk and read in formulas like any other."""
    signature = Signature(inputs={"x": "N M", "y": "..."}, outputs={"z": "N"}, sizes=("K",))

    assert signature.dimensions == ("N", "M", "K")
    assert not signature.is_plain


def test_a_type_of_no_tensor_is_refused() -> None:
    """Such a name is a slip of the pen."""
    with pytest.raises(ValidationError, match="types: expected one of x, y, got 'z'"):
        Signature(inputs={"x": "N"}, outputs={"y": "N"}, types={"z": "int32"})
