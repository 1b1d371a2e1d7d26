"""What coding agents used: read from their own results and, where the user allows it, from their logs."""
