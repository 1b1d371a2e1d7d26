"""Frozen pydantic models that several rooms share. Models of one room are in its `model.py`.

Begin with `plan` and `target`, which users write. Then `measurement` (results of the bench),
`record` (what a session stores), `output` (results of actions) and `index` (rows of all sessions).
The docstring below a field becomes its description in schema and reference.
"""
