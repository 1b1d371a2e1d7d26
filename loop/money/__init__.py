"""Money: what a session cost, what its patterns saved, and decisions that weigh dollars.

Begin with `bill`: it puts together the charges of a session (`charging`: measured use times dated prices) and what
was spared, as measured here. What other projects lost is in no sum, and what has no figure is named, never zero.

`ledger` adds up the bills of sessions, from rows of the index.
`keep_or_stop` and `pivot` are pure decisions. What nobody knows stays unknown; the decision says what it would
have to be. `actions` has the steps, `section` the part of the report, `command` and `decisions` the commands.
"""
