"""The bundled target's README: its example for PyTorch runs and computes what it says."""

import re
from typing import Any

from torch.nn.functional import scaled_dot_product_attention

from tests.conftest import ROOT
from tests.pytorch.operators import worst

README = ROOT / "kernels" / "attention" / "README.md"


def test_the_example_computes_attention() -> None:
    """As it stands there."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    inputs = [names[name].double() for name in "qkv"]
    assert 1e-5 > worst(names["output"], scaled_dot_product_attention(*inputs, is_causal=True))
