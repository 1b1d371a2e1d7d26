"""Agents that drive `loop`: the same commands as tools of an MCP server, and a skill that says how to use them.

Begin with `tools`: it derives a tool from each command that has `agents`. `server` speaks
the protocol. `jobs` keeps work that takes longer than a call: a process of its own, which outlives the server.
`changes` lets an agent without a shell read a brief and edit. `skill` writes SKILL.md and a section of AGENTS.md
from the same commands.

No command of a person's is a tool: trust, programs that are named in a call, and what removes something.
"""
