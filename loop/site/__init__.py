"""The catalogue: definitions and rows of the index as pages of plain HTML.

Begin with `command`, which gathers what is shown, and writes the pages beside their place and swaps. `pages`
yields each page by its path. Names become file names, and text of any origin is cleaned, in one place. A
stored report is shown with its figures as images.
"""
