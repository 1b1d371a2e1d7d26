"""Money: what a session cost, what its patterns saved, and decisions that weigh dollars.

Begin with `bill`: measured use times dated prices, and what the cache spared, as measured here. What has no
figure is named, never zero.

`decisions` are pure rules, and the steps that ask them: keep or stop a GPU, go on or pivot. What nobody knows
stays unknown; the decision says what it would have to be. `section` is the part of the report, `command` the
commands.
"""
