"""What earlier sessions say: predictions, failures seen before, advice, comparisons.

Begin with `statistics` (what is known of a pattern) and `failures` (who met an error before, and what cured
it). Both are pure functions over rows of the index. Each environment counts by how like the last session's it
is (`durations.alike`).

`durations` shrinks times to the author's estimate, `prediction` weights runs by likeness of work, place and
cache, and `calibration` widens intervals by how earlier ones held. `predicting` writes that into a session's
head before the first step. `memory` tells of a failure while its step fails. `drafts` derives a pattern from
what three sessions met; only dismissals are stored.
`comparison` holds ratios of one target, device and baseline beside each other.
"""
