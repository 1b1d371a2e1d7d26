"""Session folders, journals and their index.

Begin with `sessions` (a folder with head, record and report; the index) and `journal` (one line per
event, on disk before the next step begins). The index is a cache, one row per folder; copies are
not counted. Readers name damaged files and skip them. A session recorded before `loop` has only
`recorded.json`. `fingerprints` removes from error texts what differs from run to run.
"""
