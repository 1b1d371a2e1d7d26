"""The catalogue: a static website of patterns, sessions, kernels and plans.

Begin with `command`: it collects the contents, writes all pages to a temporary folder, then renames
that. `pages` yields each page with its path, makes safe file names, and cleans text of any origin.
A stored report is shown with its figures as images.
"""
