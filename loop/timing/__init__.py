"""Is a variant faster? Time it in rounds of fresh processes, and claim no more than samples show.

Words: a *side* is a build that is timed. A *sample* is one or more calls, a *segment* a series of
samples of one side. A *round* (or *block*) times all sides once, in one set of processes.

Verdicts: `samples` decides which samples, segments and rounds count, and gives their log ratios.
`verdicts` turns these into a measurement and a word: `by_interval` from a few rounds, `by_evidence`
block by block (for a `Contest`). `same` needs a positive control that was found slower: a slowed
copy. `doubts` turns suspicious timings into `invalid` verdicts.

Samples: `schedule` plans rounds, starts processes, and alternates the sides. `timed_call` makes
calls in the judge's memory, by the judge's clock. The judge knows the answer of one random call of
a segment, the *verified* one. A variant cannot tell which that is.

Steps: `against_baseline` (`kernel.measure`), `against_known_good` (`kernel.compare`). `readiness`
lists variants that may be timed, and locks the device.
"""
