"""The means of a report: Markdown, tables, figures, HTML. What is said of a feature is in the feature's room.

Text of a record may come from anywhere. `plain` takes controls out of it, `markdown` escapes it.
`templates` renders a page from plain values and escapes whatever is not `Markdown` already.
`html` makes one file of a report: markdown-it reads the Markdown, and figures go inside.
`figures` draws SVG that stands in the page and in a file of its own.

Begin with `markdown`, then read `findings` for an example of a part.
"""
