"""What earlier sessions say: predictions, failures seen before, the next plan, comparisons.

Begin with `statistics` (what is known of a pattern) and `failures` (who met an error before, and what cured it).
Both are functions over rows of the index. A run counts by how like its environment is to the last session's
(`durations.alike`).

- `durations` shrinks times to the author's estimate. `prediction` weights runs by how like they are in work,
  place and cache. `calibration` widens intervals by how earlier ones held. `predicting` writes that into a
  session's head before the first step.
- `memory` tells what is known of a failure while its step fails.
- `present` and `next_plan` say what stands against the target as it is, and what to do about it.
- `comparison` puts ratios of one target, device and baseline beside each other.
"""
