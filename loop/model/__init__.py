"""Frozen pydantic models that several rooms share. A model of one room is in that room's `model.py`.

Begin with `plan` and `target`, which users write. Then `measurement` (results of the bench),
`record` (what a session stores), `output` (results of actions) and `index` (rows of all sessions). The
docstring below a field becomes its description in schema and reference.
"""
