"""A session in the formats of other tools: a trace, rows of samples, one JSON object."""
