"""Folders of YAML to definitions: read, checked, never executed."""
