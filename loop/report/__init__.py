"""The tools of a report: Markdown, tables, figures, HTML. `findings` and `culprits` are the sections on verdicts
and on bisections; each other feature's room makes its own.
`screen` prints on a terminal; it is the only file that prints.

Begin with `markdown`, then read `findings` as an example of sections. A record's text may come from
anywhere: `plain_text` removes control characters, `markdown` escapes it. `templates` renders a page
and escapes all values that are not `Markdown` already. `html` turns a report's Markdown into one
file with its figures. `figures` draws SVG, for that page and for a file.
"""
