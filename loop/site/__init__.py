"""The catalogue: definitions and rows of the index as pages of plain HTML.

Begin with `command`, which gathers `contents`. `pages` yields each page by its path, `folder` writes them
beside their place and swaps. Names become file names, and text of any origin is cleaned, in one place (`plain`).
A stored report is shown with its figures as images.
"""
