"""Runs a plan as a session: writes its journal, its record and its report.

Begin with `run`: it opens a session, walks its steps and closes it. `opening` resolves the plan and
builds the session's head (all that is known before the first step). `walk` is a generator of events.
It neither prints nor writes. Closing it ends every process that a step started, so limits, budgets
and Ctrl-C work. `drive` writes each event to disk, then shows it. `bounds` checks each event against
the limits on time and money.

`closing` computes the record from the journal by pure rules: `objective`, and the grade in `course`.
A resumed walk starts at the first step again and reuses the records of finished steps. A step whose
output has an `identity` runs again. When the identity has changed, later steps run again, too.

`page` builds the report's sections, `first_screen` its beginning and the short form for a comment.
`next_session` proposes the next session. `command` is `loop report`. `shown` prints the results of
commands without a session. `recorded` imports sessions that were recorded without loop.
"""
