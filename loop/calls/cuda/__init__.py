"""Calls of compiled variants on a GPU by the CUDA driver. Begin with `driver`, then `stage`."""
