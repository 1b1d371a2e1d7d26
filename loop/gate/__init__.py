"""Is it right? Every output is held against float64, each element by what rounding may cost it.

Begin with `verify`: a variant computes in a process of its own, the judge compares in another. Candidates run
between guard zones. Their output starts as NaN. Each call is repeated with other bytes around its tensors: a
write changes a zone, a read outside makes the output follow the bytes. Compiled variants also run with each tensor
flush against closed pages. A second seed comes at the same addresses, so that an address says nothing of a value.
A call's limit comes from what the reference took. `verification` puts all checks into words. `kernel` holds the
steps around it: sources, build, load, verify, what changed since the known good.

`properties` needs no reference: a generator function in the judge asks for outputs and relates them. `emulating`
sends a GPU's kernels, run by the emulator, through the same verification. `sanitizing` runs compiled CUDA variants
under compute-sanitizer, on a few small workloads. `environment` says beforehand whether anything can run here.
"""
