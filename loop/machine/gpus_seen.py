"""Print what CUDA sees here as JSON: `python -m loop.machine.gpus_seen`. Creates no context."""

import ctypes
import json
import sys
from typing import Any

from loop.calls.call import Refused
from loop.calls.cuda import driver as cuda


def query_driver(library: str = cuda.LIBRARY) -> dict[str, Any]:
    """The newest CUDA release that the driver supports (`cuda`, or None), and the `gpus` in CUDA's
    order. Without a GPU, `why` says the reason, and `lack` names what is missing."""
    answer: dict[str, Any] = {"cuda": None, "gpus": [], "why": "", "lack": ""}
    try:
        driver = cuda.load_driver(library)
        version = driver.get("cuDriverGetVersion", ctypes.c_int)  # 13000 for CUDA 13.0.
        answer["cuda"] = version // 1000, version % 1000 // 10
        count = driver.get("cuDeviceGetCount", ctypes.c_int)
        devices = [driver.get("cuDeviceGet", ctypes.c_int, index) for index in range(count)]
        answer["gpus"] = [cuda.read_gpu_facts(driver, device) for device in devices]
    except Refused as error:
        answer["why"], answer["lack"] = str(error), getattr(error, "lack", "")
    return answer


if __name__ == "__main__":
    sys.stdout.write(json.dumps(query_driver()))
