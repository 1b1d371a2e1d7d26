"""Programs that propose changes to a kernel: run, watch and end them, report what their AI used.

`proposing.run_proposer` runs one; `PRESETS` lists those that `loop` knows. `read_ai_use` parses a
program's own cost report; `read_session_use` adds up a session's.
"""
