"""What earlier sessions say: predictions, failures seen before, the next plan, comparisons.

All are functions over rows of the index.

- `prediction`: the time of a pattern and of a plan, from its author's estimate and from runs weighted by work,
  environment and cache; how earlier predictions held; how a pattern stands.
- `failures`: who met an error before, and what cured it.
- `next_plan`: what failed and was not judged on the target as it is, and what the next session should do.
- `learnings`: what the records of one session show, in sentences.
- `comparison`: sessions beside each other. `searching`: patterns by words.
"""
