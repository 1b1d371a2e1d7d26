"""The tools of a report: Markdown, tables, figures, HTML. Only `screen` prints.

Begin with `markdown`, then read `findings` as an example of sections. A record's text may come from
anywhere: `plain_text` removes control characters, `markdown` escapes it. `templates` renders a page
and escapes all values that are not `Markdown` already. `html` turns a report's Markdown into one
file with the figures of `figures`. Each feature's room makes its own sections.
"""
