"""Names of GPU models, and the facts that a manifest or the driver has on the GPU at hand."""

import re
from collections.abc import Mapping

from loop.model.profile import DeviceFacts

GENERIC_GPU_WORD = re.compile(r"NVIDIA|TESLA|GEFORCE|GPU|SXM\d?|HBM\d\w?")
"""Words of a GPU name that do not identify the model. `PCIe`, `NVL`, `MIG`, `Ti`, `Laptop` do."""
MEMORY_SIZE_WORD = re.compile(r"\d+GI?B")


def is_same_gpu_model(name: str, driver_name: str) -> bool:
    """Whether two names mean the same GPU model: `H100` and `NVIDIA H100 80GB HBM3`, not `H100 PCIe`. Memory
    sizes are compared only if both names contain one."""
    sizes, models = [], []
    for text in (name, driver_name):
        words = set(re.split(r"[\s-]+", text.upper().strip()))
        memory_words = {word for word in words if MEMORY_SIZE_WORD.fullmatch(word)}
        sizes.append(memory_words)
        models.append({word for word in words - memory_words if not GENERIC_GPU_WORD.fullmatch(word)})
    return models[0] == models[1] and (sizes[0] == sizes[1] or not all(sizes))


def facts_of_present_gpu(
    manifest_facts: Mapping[str, DeviceFacts], capability: str | None, name: str, driver_facts: DeviceFacts | None
) -> DeviceFacts | None:
    """Facts of this machine's GPU: the manifest's if its name and size agree with the driver, else `driver_facts`.
    `manifest_facts`: by architecture (`sm_89`). `capability`: as in `8.9`. `name`: the driver's name of it."""
    datasheet = manifest_facts.get(f"sm_{capability.replace('.', '')}") if capability else None
    if datasheet is None or not is_same_gpu_model(datasheet.name, name):
        return driver_facts
    is_other_size = driver_facts is not None and driver_facts.sms != datasheet.sms
    return driver_facts if is_other_size else datasheet
