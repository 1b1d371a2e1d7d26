"""Folders of a target: its modules are found there first, as beside a script that Python runs.

Import torch before `search`: a file `torch.py` of the target's would take its place.
"""

import os
import sys

FOLDERS: list[str] = []
"""Folders of the target, in the order in which they are searched. They stand first on the path."""


def search_folder(folder: str, *, last: bool = False) -> None:
    """Search a folder for modules: before the target's other folders, or after them."""
    if folder not in FOLDERS:
        place = len(FOLDERS) if last else 0
        FOLDERS.insert(place, folder)
        sys.path.insert(place, folder)


def shadowed_import(name: str) -> str:
    """Why a module of the target's cannot be imported: another one has its name. Empty where none has."""
    top = name.partition(".")[0]
    if name.endswith(".py") or top not in sys.modules:
        return ""
    other = getattr(sys.modules[top], "__file__", None) or "a module that is built into Python"
    files = (os.path.join(folder, file) for folder in FOLDERS for file in (f"{top}.py", f"{top}/__init__.py"))
    own = next((file for file in files if os.path.isfile(file)), "")
    if not own or any(other.startswith(folder + os.sep) for folder in FOLDERS):
        return ""
    return f"{own} has the name of {other}: rename it"
