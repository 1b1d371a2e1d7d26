"""What earlier sessions teach: predictions, known failures, the next plan, comparisons.

All but `turns` are functions over rows of the index.
- `prediction`: time of a pattern and a plan, from estimate and past runs; how earlier ones held.
- `failures`: earlier sessions with the same error, and what cured it.
- `next_plan`: unresolved failures, what was not checked, what to do next, and what that needs.
- `learnings`: conclusions from one session's records, in sentences.
- `comparison`: sessions next to each other.
- `turns`: steps that try no build again that was wrong, and no edit of several variants at once.
"""
