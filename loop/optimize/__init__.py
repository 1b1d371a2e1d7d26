"""Request candidates that should be faster, judge them, keep or revert them.

A change is one run of the pattern `profile-before-optimise`, in these steps:
1. `briefing` chooses the slowest variant, creates a worktree and writes a brief. Then a person
   edits (the session pauses, exit 75), a campaign's proposers do, or `tuning` searches.
2. `candidate` runs each step of the gate on the edited worktree; with an executor, a job times it.
3. `comparisons.decide_on_change` decides whether the change stays (pure; add a rule there).
4. `comparisons.confirm` measures the kept changes again at the end.

A campaign goes on until `briefing.CampaignSpent` ends it (pure; add a stop rule there).
`session_changes` decides what to take of an edit. It finds the current change, the builds to beat,
and what earlier sessions reverted. A kept change is a commit on `loop/<session>`.
"""
