"""Makes one call of a variant in a worker: its memory, guard zones, the call itself, its timing.

Begin with `call` (data types) and `invocation` (preparing a call for a check or for timing).
`library`, `external` and `torch_call` load the three kinds of variant; `cuda` runs a library's
calls on a GPU. In a check, tensors lie between guard zones (`memory`), and `name_faults` names the
one next to a fault. In timing, they lie in memory shared with the judge, which sends orders through
it (`arena`). `seal` detects that a variant replaced functions that time and judge it. `callee`
passes any structure of arguments to a Python function. Only it and `torch_call` import torch.
"""
