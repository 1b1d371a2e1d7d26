"""Which commit made a kernel slower or wrong.

Begin in `search`: what to observe next, and when the answer is known. It is pure: it knows commits by number and
never measures. It follows from the probes alone, so an interrupted search goes on from what it kept. `Pairs` and
`Runs` say for which side of the step a build votes: by log ratios, or by runs that pass or fail. `model` has its
nouns.
- `candidates` lists commits and builds each by its own recipe. Those whose builds read the same are one program.
- `trying` makes one try: a kernel's speed or correctness, or a user's command, in a worktree. For a kernel it asks
  the gate first whether the bad end is slower or wrong today, and on which workloads. What came of it is kept.
- `hunt` runs one search from its first try to its answer, and goes into the merge that is to blame.
- `command` and `actions` start it, for a user and for a session that found a regression. `section` tells it.

`tests/bisect/simulated.py` runs the search on made-up histories; `make bench-bisect` writes its error rates.
"""
