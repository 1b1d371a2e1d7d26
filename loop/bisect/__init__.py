"""The search over commits: which one made a kernel slower, or wrong."""
