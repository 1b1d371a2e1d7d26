"""The two programs `judge` and `worker`, and the parent's ends of them.

The judge knows torch. It makes the inputs, works the reference out in float64, and never loads a candidate. A
worker holds one variant. It imports no torch for a compiled one, so it starts in tens of milliseconds.

`asking` calls what the target names: generator, reference, checker. `truth` says how far an output may be off.

Each program has a table from the type of a request to a function (`judge_program`, `worker_program`). Requests
and replies are dataclasses (`judge_messages`, `worker_messages`). `wire` reads them strictly: whatever else
stands on the wire was written by somebody else, and the check is *tampered*. Tensors travel in files, timed ones
in shared memory. Begin reading in `bench`: it opens workers, keeps the judge, and turns workloads into calls.

A worker that crashes or hangs is one check that failed. `checking` makes the calls of one check: the same values
again and again, with other bytes around the tensors. `judge_clock` gives orders and times them from outside.
"""
