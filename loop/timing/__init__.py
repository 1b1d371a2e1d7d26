"""Is a variant faster? Time it in rounds of fresh processes, and claim no more than samples show.

Verdicts: `samples` decides which samples, segments and rounds count, and computes the log ratio of
each round. `verdicts` turns log ratios into a measurement and a word: `by_interval` from a few
rounds, `by_evidence` block by block (a `Contest` asks it after each block). `same` needs a positive
control, a slowed copy of the variant, that was found slower. `doubts` turns suspicious timings into
`invalid` verdicts.

Samples: `schedule` plans the rounds, starts a fresh process for each side, and alternates the
sides. `timed_call` makes one side's call in the judge's shared memory, by the judge's clock. One
random call of a segment uses values whose answer the judge knows. A variant cannot tell which call
that is.

Steps: `against_baseline` (`kernel.measure`), and `against_known_good` (`kernel.compare`): each
variant against itself, itself made slower, and its known-good build. `theirs` runs a task's own
evaluator. `readiness` lists variants that may be timed, and locks the device.
"""
