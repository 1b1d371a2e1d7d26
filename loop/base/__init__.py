"""What no other room is about, and what every room may use.

- `errors`: the one family of errors. Each class has its exit code: 2 for wrong usage, 1 for failed
  work, 75 for a failure of the machine.
- `places`, `locks`: where files lie, who else may change them, who uses them now.
- `documents`: YAML and JSON to typed objects; every mistake has its file, line and column.
- `expressions`: the language of `when`, `gate` and formulas. `stats`: plain statistics.
- `processes`: programs that end when they should, and only then; signals, as flags.

Begin with `errors`, then `places`. Stored JSON ends with a checksum (`documents/sums`)."""
