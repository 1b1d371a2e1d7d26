"""What earlier sessions say: predictions, failures seen before, the next plan, comparisons.

Begin with `statistics` (what is known of a pattern) and `failures` (who met an error before, and what cured it).
Both are functions over rows of the index.

- `durations`: the time of one pattern, from its author's estimate and from runs weighted by environment.
- `prediction`: the time of a plan. Runs are weighted by work, environment and cache. `predicting` writes it into a
  session's head before the first step. `calibration` says how earlier predictions held.
- `next_plan`: what failed and was not judged on the target as it is, and what the next session should do.
- `learnings`: what the records of one session show, in sentences.
- `comparison`: sessions beside each other. `searching`: patterns by words.
"""
