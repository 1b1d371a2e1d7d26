"""Print what CUDA sees here as JSON: `python -m loop.machine.gpus_seen`. Creates no context."""

import ctypes
import json
import sys
from typing import Any

from loop.calls.call import Refused
from loop.calls.cuda import driver as cuda


def look_at_driver(library: str = cuda.LIBRARY) -> dict[str, Any]:
    """The newest CUDA release that the driver supports (`cuda`), and the `gpus` in CUDA's order.

    Without a GPU, `why` says the reason, and `lack` names what is missing.
    """
    answer: dict[str, Any] = {"cuda": None, "gpus": [], "why": "", "lack": ""}
    try:
        driver = cuda.load(library)
        answer["cuda"] = cuda.cuda_release(driver)
        count = driver.make("cuDeviceGetCount", ctypes.c_int)
        handles = [driver.make("cuDeviceGet", ctypes.c_int, index) for index in range(count)]
        answer["gpus"] = [cuda.facts(driver, handle) for handle in handles]
    except Refused as error:
        answer["why"], answer["lack"] = str(error), getattr(error, "lack", "")
    return answer


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look_at_driver()))
