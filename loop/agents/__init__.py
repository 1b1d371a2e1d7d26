"""Coding agents: how one is asked for a change, and what it used.

Begin with `proposing`: it runs the user's command with the brief of a paused session, and resumes the session.
`results` reads what the agent printed about its own run: its cost, or its tokens. `spending` keeps those results
and what the user stated (`--ai-usd`) as `ai.json` in the session's folder. A resumed session still knows them.

An agent's own result comes before a stated amount. A cost that nobody told is unknown, never zero.
"""
