"""Calls of compiled variants on a GPU, through the CUDA driver. Begin with `driver`, then `stage`."""
