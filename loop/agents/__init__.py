"""Programs that propose changes: how one is called, how it is ended, and what it used.

Begin with `presets`, the table of known programs; one more is a row. `proposing` runs a proposer in a process
group of its own and leaves nothing of it. `results` reads what it printed about its own run, and adds that up with
what the user stated (`--ai-usd`).

An agent's own result comes before a stated amount. A cost that nobody told is unknown, never zero.
"""
