"""What earlier sessions teach: predictions, known failures, the next plan, comparisons.

All but `turns` are functions over rows of the index.
- `prediction`: time of a pattern and a plan, from the author's estimate and past runs; accuracy of
  earlier predictions; status of a pattern.
- `failures`: earlier sessions with the same error, and what cured it.
- `next_plan`: failed checks that nothing has resolved, what was not checked on the current files,
  what to do next, and the sessions that the next one needs.
- `learnings`: conclusions from one session's records, in sentences.
- `comparison`: sessions next to each other.
- `turns`: steps that try no build again that was wrong, and no edit of several variants at once.
"""
