"""Which commit made a kernel slower, or wrong.

Begin in `hunt`: one search from its first try to its answer. `command` and `actions` start it.
- `candidates` lists the commits. Those with the same sources count as one kernel.
- `gate` times both ends first. `loop` searches only where the bad end is slower today.
- `bisection` decides the next try from the journal alone. So an interrupted search reads what it kept and goes on.
- Its rules are pure: they know commits by number and never measure. To change what ends a search, edit
  `bisection._enough`; to change what is tried next, edit `probes.choose`.
- `latency_search` and `flaky_search` hold what differs between timings and runs that pass or fail.
- `trying` and `user_command` make one try: in a worktree, by that commit's own recipe (`builds`). What came of it
  is kept (`trying.ProbeMemory`).
- What does not build is skipped with its reason. Where a merge is to blame, `hunt` searches its branches.

`tests/bisect/simulated.py` runs the rules on made-up histories; `make bench-bisect` writes their error rates.
"""
