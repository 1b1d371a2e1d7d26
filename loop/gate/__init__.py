"""The correctness gate: compares each output element with float64, within its rounding error.

Begin with `verify`: a variant computes in a worker process, and the judge compares in another.
Tensors lie between guard zones, and outputs start as NaN. Each call is repeated with other bytes in
the zones: a write outside changes a zone, a read outside the output. Compiled variants also run
with each tensor next to protected pages. A second seed uses the same addresses, so that caching by
address fails. `kernel` holds the actions: sources, build, load, verify (also CUDA kernels under an
emulator on the CPU); and the known-good build of earlier sessions, built again.

`properties` needs no reference: the judge asks for several outputs and relates them. `sanitizing`
runs compiled CUDA variants under compute-sanitizer, on a few small workloads. `environment` checks
beforehand whether anything can run here.
"""
