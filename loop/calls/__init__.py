"""One call of a variant: its memory, what surrounds it, how it is made and timed. Runs in a worker.

Read `call` (the nouns) and `invocation` (how a call is made ready for a check, and for timing) first. `library`,
`external` and `torch_call` load the three kinds of variant, `cuda` the calls of a library on a device.

A checked call has tensors between guard zones (`memory`; `cuda.driver` has that of a device, `torch_call` that of
torch). A fault beside one is named (`invocation.FaultWatch`). A timed call lies in memory that the judge shares
with the worker, and the judge gives orders through a page of it (`arena`). `seal` notices when a variant replaces
what it is timed and judged with.

A Python function may take any structure: `callee` puts it together around tensors of ours and takes several
outputs apart. Only `callee` and files whose names begin with `torch` import torch.
"""
