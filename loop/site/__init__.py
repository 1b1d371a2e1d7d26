"""The catalogue: a static website of patterns, sessions, kernels and plans.

Begin with `catalog.build_site`: it collects the contents, writes all pages to a temporary folder, then
renames that. `pages` yields each page with its path; names become safe file names, and text of any
origin is cleaned. Reports stay with their sessions: a page names the command that prints its session's.
"""
