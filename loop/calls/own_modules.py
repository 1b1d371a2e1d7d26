"""Folders of a target that Python searches for modules first, as it does with a script's own
folder. Import torch before `search_folder`, because a target's file `torch.py` would replace it."""

import os
import sys

FOLDERS: list[str] = []  # Folders of the target in search order, at the front of sys.path.
MAX_ERROR_CHARACTERS = 1000  # Longest error message: an exception may print a whole tensor.


def search_folder(folder: str, *, comes_last: bool = False) -> None:
    """Search a folder for modules before Python's own. `comes_last`: after the target's others."""
    if folder not in FOLDERS:
        position = len(FOLDERS) if comes_last else 0
        FOLDERS.insert(position, folder)
        sys.path.insert(position, folder)


def explain_shadowed_import(name: str) -> str:
    """Why `import name` does not give the target's own module: another module of that name was
    loaded before. Empty if the target has no such module, or if it is the one that was loaded."""
    top_module = name.partition(".")[0]
    if name.endswith(".py") or top_module not in sys.modules:
        return ""
    loaded_file = getattr(sys.modules[top_module], "__file__", None) or "a module built into Python"
    if any(loaded_file.startswith(folder + os.sep) for folder in FOLDERS):
        return ""
    names = (f"{top_module}.py", f"{top_module}/__init__.py")
    own_files = (os.path.join(folder, file_name) for folder in FOLDERS for file_name in names)
    own_file = next(filter(os.path.isfile, own_files), None)
    return f"{own_file} has the name of {loaded_file}: rename it" if own_file else ""


def describe_error(error: Exception) -> str:
    """An exception in one line: type, first line of its text, last frame in the target's files."""
    import traceback  # Here, and not at the top: a worker that is timed needs neither.
    from pathlib import Path

    description = type(error).__name__
    lines = str(error)[:MAX_ERROR_CHARACTERS].strip().splitlines()
    if lines:
        description += f": {lines[0]}"
    target_folders = FOLDERS or [sys.path[0] or os.curdir]  # Searched for the target's modules.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if any(path.is_relative_to(folder) for folder in target_folders):
            return f"{description} ({path.resolve().name}:{frame.lineno})"
    return description
