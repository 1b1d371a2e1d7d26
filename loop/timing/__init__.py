"""Is it faster? Rounds of fresh processes, what their samples came to, and a verdict that claims no more.

Begin with the way of a verdict, two files. `samples` says which samples, segments and rounds count, and gives the
log ratio of each round. `verdicts` makes a measurement of them, with its interval, and a word of that
(`by_interval`), or of the blocks of the sequential rule (`by_evidence`, asked by a `Contest` after each block).
What is `same` counts only where the slowed copy of the variant was seen to be slower. `doubts` turns what was
noticed beside the samples into `invalid_verdict`; it knows what no call can be faster than.

Samples come from two files. `schedule` says how many rounds there is time for, has a fresh process for each side,
and lets sides take turns. `timed_call` makes one side's call, in the judge's memory and by its clock. The judge
draws which call of a segment is on values whose answer it knows. Nothing tells that call from the others.

The steps are `against_baseline` (`kernel.measure`) and `against_known_good` (`kernel.compare`). The first needs a
few rounds. The second goes block by block: each variant against itself, itself made slower, and its known good.
`readiness` says which variants may be timed, and holds the device. `theirs` is a task's own evaluator.
"""
