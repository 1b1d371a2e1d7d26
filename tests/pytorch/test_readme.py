"""The bundled target's README: its example for PyTorch runs and computes what it says."""

import re
from typing import Any

from torch.nn.functional import scaled_dot_product_attention

from tests.conftest import ROOT
from tests.pytorch.operators import attention, worst

README = ROOT / "kernels" / "attention" / "README.md"


def test_the_example_computes_attention() -> None:
    """As it stands there."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    inputs = [names[name].double() for name in "qkv"]
    assert 1e-5 > worst(names["output"], scaled_dot_product_attention(*inputs, is_causal=True))


def test_what_it_says_of_the_operator_is_so() -> None:
    """Names of attributes and of the raw operator."""
    text, names = README.read_text(), attention().op._schema.arguments
    assert f"torch.ops.loop_attention.cpu({', '.join(one.name for one in names)})" in text
