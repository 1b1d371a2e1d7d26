"""One call of a variant: its memory, what surrounds it, how it is made and timed. Runs in a worker.

`call` holds the nouns, `variants` loads a variant, `prepared` is a call with its inputs in memory. Begin there.
Every tensor lies between two guard zones (`guards`, `guarded`). A write changes a zone; a read outside makes the
output follow what stands there. On the host the zones can be closed, so that any access beyond a tensor faults
and is named (`faults`).

A timed call is a stage (`orders`, `stages`) in memory that the judge shares with the worker (`arena`,
`control`). The judge gives orders through a page of it. `seal` remembers what a variant is timed and judged
with, and tells what was replaced.

A Python function may be given any structure: `callee` puts it together around tensors of ours, and takes several
outputs apart. Only it, `allocations`, `rounding` and files whose names begin with `torch` import torch.
"""
