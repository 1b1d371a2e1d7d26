"""Mistakes and cheats: makes an honest variant err, to test the gate. Runs in a worker.

A mistake wraps the C entry or the Python function, so the rest is what a real candidate meets.
`proving.prove` lists the mistakes for a target and the check that must find each.

Begin with `table.err`: it makes a mistake in one `ErringCall`, whose memory lasts between calls.
Each mistake is there once, for host, device and Python functions; GPU tensors are copied to the
host. `functions` applies them to Python variants and adds cheats that only Python allows."""

import copy
from typing import Any

from loop.calls.call import Refused
from loop.calls.external import External
from loop.calls.invocation import Loaded
from loop.calls.library import Compiled
from loop.mistakes.table import ErringInvoke, Settings


def wrap(loaded: Loaded, settings: Settings) -> Loaded:
    """A loaded variant's copy with the mistake of `settings`. Raises Refused for a program."""
    if isinstance(loaded, External):
        raise Refused("no mistake can be put into a program of its own")
    erring: Any = copy.copy(loaded)
    if not isinstance(loaded, Compiled):
        from loop.mistakes.functions import erring_class, erring_function

        make_erring = erring_class if settings.get("is_class") else erring_function
        erring.function = make_erring(erring.function, settings)
        return erring  # type: ignore[no-any-return]
    in_numbers = {**settings, "to": settings.get("number")}  # In C, an attribute is a number.
    erring.invoke = ErringInvoke(loaded.invoke, in_numbers, on_gpu=loaded.device == "cuda")
    return erring  # type: ignore[no-any-return]
