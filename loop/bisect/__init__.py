"""Which commit made a kernel slower or wrong.

Begin in `search`: what to observe next, and when the answer is known. It is pure: it numbers the
commits and measures nothing. It depends on probes alone, so an interrupted search goes on from
saved ones. `Pairs` (log ratios) and `Runs` (pass or fail) say on which side of the step a build is.
- `trying` lists and builds commits; builds of equal files are one program. It tries a commit in a
  worktree, saves the result, and first asks the gate on which workloads the bad end is bad today.
- `hunt` runs one search from first try to answer, and searches the branches of a merge.
- `command` and `actions` start it, for a user or a session. `loop.report.findings` tells it.
  `tests/bisect/simulated.py` searches made-up histories; `make bench-bisect` writes error rates.
"""
