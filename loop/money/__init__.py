"""Money: what a session cost, what its patterns saved, and decisions that weigh dollars.

Begin with `bill`: measured use times dated prices, and what the cache spared, as measured here. What has no figure
is named, never zero.

`keep_or_stop` and `pivot` are pure decisions. What nobody knows stays unknown; the decision says what it would
have to be. `actions` has the steps, `section` the part of the report, `command` the commands.
"""
