"""The processor and GPUs of this machine: facts, sensors, and other users of the GPU.

Begin with `machine`: the facts that every result carries, and NVIDIA's tables of drivers, CUDA
releases and GPUs. It asks the driver which GPUs a CUDA program sees; nvidia-smi numbers them
differently. Everything runs on the first GPU. `nvml` reads its sensors and detects other users.
`failures` tells a failure of the machine from one of the target: a full disk, too little memory.
"""
