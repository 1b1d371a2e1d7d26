"""The catalogue: a static website of patterns, sessions, kernels and plans.

Begin with `catalog.build_site`. Reports stay with their sessions: a page names their command.
"""
