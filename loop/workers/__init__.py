"""The programs `judge` and `worker`, and the code in the session's process that talks to them.

The judge imports torch. It makes the inputs, computes the reference in float64, and never loads a
candidate. A worker process loads one variant; it starts in milliseconds if that is compiled.

Begin with `bench`: it starts workers, keeps the judge, and turns workloads into calls. `messages`
lists the requests and replies of workers, `judge_messages` the judge's. A reply that cannot be
parsed means that a candidate wrote to the socket: the check is *tampered*. Tensors travel in files;
those of timed calls travel in shared memory.

In the judge, `target_functions` calls the target's functions, `truth` bounds the error of outputs,
`suspects` explains wrong outputs and what inputs cannot show, and `judge` checks properties. In the
worker, `worker_program` makes the calls of a check, with different bytes in the guard zones.
`program` starts both, sends orders to workers and times them. A crash or hang fails one check."""
