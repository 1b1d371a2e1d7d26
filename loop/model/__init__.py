"""Nouns that two rooms share, as frozen pydantic models. A noun of one room is in that room's `model.py`.

Begin with `plan` (patterns too) and `target`: what users write. Then `measurement` and `verdict`: what the
bench finds, `record`: what a session stores, `output`: what actions find, `index`: what all sessions say. A
field has a sentence below it where its name does not tell; it becomes the description in the schema and the
reference. A union tagged by `kind` or `status` carries its rules: a failed step has no latency.
"""
