"""Lets AI agents use `loop`: its commands as tools of an MCP server, and a skill that explains it.

Begin with `server`: it makes a tool of each command that has `mcp`, and speaks the protocol. Long
work becomes a job that outlives the server. `install` writes SKILL.md and a section of AGENTS.md.
Three kinds of commands are no tools: trust, programs named in a call, and what deletes files.
"""
