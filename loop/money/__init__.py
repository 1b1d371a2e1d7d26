"""Money: what a session cost, what its patterns saved, and decisions that weigh dollars.

Begin with `bill`: it puts together the charges of a session (`charging`: measured use times dated prices) and its
savings (`savings`). Each saving names its class of evidence: measured here, recorded history, or an author's
estimate. Classes are never added up, and what has no figure is named, never zero.

`ledger` adds up the bills of sessions, from rows of the index.
`keep_or_stop` and `pivot` are pure decisions. What nobody knows stays unknown; the decision says what it would
have to be. `actions` has the steps, `section` the part of the report, `command` and `decisions` the commands.
"""
