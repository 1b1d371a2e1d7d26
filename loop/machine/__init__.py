"""The processor and GPUs at hand: facts, sensors, and who else uses them.

Begin with `machine`: facts that stand beside every number, and NVIDIA's tables of which CUDA release runs
under which driver and compiles for which GPU. `gpus` asks the driver, in a process of its own, which GPUs a
CUDA program sees: nvidia-smi numbers others. Everything runs on the first one. `nvml` reads its sensors,
looks for others on the GPU, and says it in words.
"""
