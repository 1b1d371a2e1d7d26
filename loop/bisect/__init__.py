"""Which commit made a kernel slower or wrong.

Begin in `search`: what to observe next, and when the answer is known. It is pure: it knows commits by number and
never measures. It follows from the probes alone, so an interrupted search goes on from what it kept.
- `pairs` and `runs` say for which side of the step a build votes: by log ratios, or by runs that pass or fail.
- `candidates` lists the commits. Those whose builds read the same are one kernel.
- `gate` asks first whether the bad end is slower or wrong today, and on which workloads.
- `hunt` runs one search from its first try to its answer, and goes into the merge that is to blame. `kernels` sets
  it up for a kernel; `command` and `actions` start it.
- `trying` and `user_command` make one try: in a worktree, by that commit's own recipe (`builds`). What
  came of it is kept (`trying.ProbeMemory`).

`tests/bisect/simulated.py` runs the search on made-up histories; `make bench-bisect` writes its error rates.
"""
