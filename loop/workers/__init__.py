"""The two programs `judge` and `worker`, and the parent's ends of them.

The judge knows torch. It makes the inputs, works the reference out in float64, and never loads a candidate. A
worker holds one variant. It imports no torch for a compiled one, so it starts in tens of milliseconds.

Begin reading in `bench`: it opens workers, keeps the judge, and turns workloads into calls (`workload_call`).
`messages` lists what a worker is asked and replies, `judge_messages` the judge. Both are read strictly: a line
that is no message was written by somebody else, and the check is *tampered*. Tensors travel in files, timed ones
in shared memory.

In the judge `asking` calls the functions of the target, `truth` says how far an output may be off, `suspects`
explains wrong ones, `blind_spots` names what the inputs cannot show, and `relations` walks properties. In the
worker `checking` makes the calls of one check: the same values again and again, with other bytes around them.
`judge_process` gives orders and times them from outside. A worker that crashes or hangs is one check that failed.
"""
