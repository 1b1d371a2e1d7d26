"""Money: what a session cost, what its patterns saved, and decisions that weigh dollars.

Begin with `bill`: measured use times dated prices, and compile time saved by the build cache. A
resource without a figure is named, never counted as zero. `decisions` holds the rules.
"""
