"""Mistakes and cheats: an honest variant made to err on purpose, which the gate has to find. Runs in a worker.

A mistake wraps what the gate sees of a variant: a C entry or a Python function. So everything around it is what a
real candidate meets. `proving.prove` says which there are for a target, and what each has to be found by.

Begin with `arrays`: a mistake is a function of one `ErringCall` and of what it keeps from call to call. It decides
how the call is computed. Each is written once, for the host, a device and functions of any structure: `values` has
those on single values, `table` the others and all of them by name. `functions` puts them into Python variants, and
has the cheats that only Python can make; `device` brings the tensors of a GPU to the host.
"""

import copy
from typing import Any

from loop.calls.call import Refused
from loop.calls.external import External
from loop.calls.invocation import Loaded
from loop.calls.library import Compiled
from loop.mistakes.arrays import OnHost, Terms, through_arrays
from loop.mistakes.table import mistake_of


def wrap(loaded: Loaded, terms: Terms) -> Loaded:
    """The same variant with the mistake that `terms["make"]` names; its other terms belong to the mistake."""
    if isinstance(loaded, External):
        raise Refused("no mistake can be put into a program of its own")
    erring: Any = copy.copy(loaded)
    if not isinstance(loaded, Compiled):
        from loop.mistakes import functions

        form = functions.erring_class if terms.get("is_class") else functions.erring_function
        erring.function = form(erring.function, terms)
        return erring  # type: ignore[no-any-return]
    where = OnHost()
    if loaded.device == "cuda":
        from loop.mistakes.device import OnDevice

        where = OnDevice()
    mistake = mistake_of({**terms, "to": terms.get("number")})
    erring.invoke = through_arrays(loaded.invoke, mistake, terms["attributes"], where)
    return erring  # type: ignore[no-any-return]
