"""Session folders, journals and their index.

Folders are the truth. Begin with `sessions` (a folder: head, record, report) and `journal` (one line an
event, on disk before the next thing begins). The `index` is a file of sealed lines in the cache folder,
derived from the folders; `rows` makes its rows. A folder that is gone is forgotten, and a copy counts once.
Damage is named where it is left out. A session that was recorded before loop is a folder with a
`recorded.json` alone.

`fingerprints` takes out of the errors of a session what differs from run to run. `judgements` says what the
checks of all sessions have against a variant; `past_changes` what earlier sessions built, verified and took
back. `ticks` are what steps of a running session say they do.
"""
