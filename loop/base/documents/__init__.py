"""Reads YAML and JSON into typed objects. Each mistake is reported with file, line and column."""

from loop.base.documents.files import content_hash, hash_files, to_json, write_atomic
from loop.base.documents.reading import Document, complain, did_you_mean, load_yaml, nearest, parse
from loop.base.errors import Complaint

__all__ = [
    "Complaint",
    "Document",
    "complain",
    "content_hash",
    "did_you_mean",
    "hash_files",
    "load_yaml",
    "nearest",
    "parse",
    "to_json",
    "write_atomic",
]
