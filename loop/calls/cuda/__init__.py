"""Calls of compiled variants on a CUDA device, through its driver alone. Begin with `driver`, then `stage`."""
