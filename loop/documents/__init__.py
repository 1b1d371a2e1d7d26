"""YAML and JSON to typed objects, every mistake with its file, line and column."""

from loop.documents.files import content_hash, to_json, write_atomic
from loop.documents.typed import complain, nearest, parse, parse_part
from loop.documents.yaml_text import Document, load_yaml
from loop.errors import Complaint

__all__ = [
    "Complaint",
    "Document",
    "complain",
    "content_hash",
    "load_yaml",
    "nearest",
    "parse",
    "parse_part",
    "to_json",
    "write_atomic",
]
