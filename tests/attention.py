"""The Python functions of the bundled target, as the judge imports them."""

from typing import Any

from loop.base.places import shipped
from loop.calls.callee import import_file

FILE = str(shipped("kernels/attention") / "attention.py")
attention: Any = import_file(FILE)
faults: Any = import_file(FILE.replace("attention.py", "faults.py"))
causal_mask, eager, torch_sdpa = attention.causal_mask, attention.eager, attention.torch_sdpa
