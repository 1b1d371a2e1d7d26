"""The three kinds of variant: a library, a Python function, and a program of its own."""

import importlib

from loop.calls.call import FunctionTerms, LibraryTerms, Terms
from loop.calls.external import External
from loop.calls.invocation import Loaded
from loop.calls.library import Compiled
from loop.calls.own_modules import search
from loop.model.dtypes import Device


def ready(terms: Terms, threads: int, device: Device) -> None:
    """Import what is needed to call a variant of that kind, before anything of the variant's own is."""
    if isinstance(terms, FunctionTerms):
        from loop.calls import torch_side

        torch_side.use_threads(threads)
        torch_call = importlib.import_module("loop.calls.torch_call")  # So that the seal covers it, too.
        if device == "cuda":
            torch_call.need_device()


def load(terms: Terms, folder: str, device: Device) -> Loaded:
    """The variant that these terms describe; raises Refused when it does not load."""
    if isinstance(terms, LibraryTerms):
        return Compiled(terms)
    if isinstance(terms, FunctionTerms):
        from loop.calls.torch_call import Importable

        search(folder)
        return Importable(terms, device)
    return External(terms, folder)
