"""Candidates that should be faster: asked for, judged, kept or taken back.

A change is one run of the pattern `profile-before-optimise`, and the steps follow each other:
1. `briefing` chooses the slowest variant, makes a worktree and writes a brief. Then a person edits (the session
   pauses, exit 75), or `campaign` has a proposer do it. `tuning` searches the values that `tuning` declares.
2. `candidate` runs each step of the gate on the edited worktree instead of the checkout. `paired` compares it in a
   job of an executor.
3. `keeping.decision_on` says whether the change stays. It is pure, and the place to add a rule for that.
4. `confirming` measures what was kept once more when all is over.

`campaign` walks rounds: `keeping.CampaignSpent` says when they end (pure, the place to add a stop rule). `edits`
says which files may change and what of a proposer's work is taken. `checking` is `loop kernels check`.

`session_changes` reads from the journal which change is at hand and which builds it has to beat. A kept change is
a commit on `loop/<session>`; one that is taken back leaves its patch. `keeping.kept_changes_gains` and `section`
feed bill and report.
"""
