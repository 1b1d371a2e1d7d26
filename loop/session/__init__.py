"""Runs a plan as a session: writes its journal, its record and its report.

Begin with `run`: it opens a session, walks its steps and closes it. `opening` resolves the plan and
builds the session's head (all that is known before the first step). `walk` is a generator of
events. It neither prints nor writes. Closing it ends every process that a step started, so limits
and Ctrl-C work. `drive` writes each event to disk, shows it, and checks limits of time and money.

`closing` computes the record from the journal by pure rules. A resumed walk starts at the first
step and reuses the records of finished steps. A step whose output has an `identity` runs again.
When the identity has changed, later steps run again, too.

`page` builds the report's sections and its first screen. `next_session` proposes what to do next.
`shown` prints results without a session. `recorded` imports sessions from elsewhere.
"""
