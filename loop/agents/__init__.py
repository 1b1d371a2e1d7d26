"""Programs that propose changes to a kernel: how they are called, watched and ended, and what they used.

`proposing.run_errand` runs one; `PRESETS` has a row for each program that `loop` knows. What it prints of its own
cost is read by `read_result`; `usage_of_session` says what a whole session's AI came to.
"""
