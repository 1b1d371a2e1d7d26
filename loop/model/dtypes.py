"""Names of devices and element types. Nothing is imported: a worker that starts in milliseconds needs them too."""

from typing import Literal

Dtype = Literal["float32", "float16", "bfloat16", "float64"]
Device = Literal["cpu", "cuda"]
