"""Folders of a target that Python searches for modules first, as it does with a script's own
folder. Import torch before `search_folder`, because a target's file `torch.py` would replace it."""

import os
import sys

FOLDERS: list[str] = []
"""Folders of the target in search order, at the front of sys.path."""


def search_folder(folder: str, *, last: bool = False) -> None:
    """Add a folder for modules: before the target's other folders, or after them if `last`."""
    if folder not in FOLDERS:
        place = len(FOLDERS) if last else 0
        FOLDERS.insert(place, folder)
        sys.path.insert(place, folder)


def explain_shadowed_import(name: str) -> str:
    """Why a target's module cannot be imported (another one has its name); empty if none has."""
    top = name.partition(".")[0]
    if name.endswith(".py") or top not in sys.modules:
        return ""
    other = getattr(sys.modules[top], "__file__", None) or "a module that is built into Python"
    files = (os.path.join(folder, file) for folder in FOLDERS for file in (f"{top}.py", f"{top}/__init__.py"))
    own = next((file for file in files if os.path.isfile(file)), "")
    if not own or any(other.startswith(folder + os.sep) for folder in FOLDERS):
        return ""
    return f"{own} has the name of {other}: rename it"
