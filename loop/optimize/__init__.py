"""Candidates that should be faster: asked for, judged, kept or taken back.

A change is one run of the pattern `profile-before-optimise`, and the steps follow each other:
1. `briefing` chooses the slowest variant, makes a worktree, writes a brief and pauses the
   session (exit 75). `tuning` makes the edit itself: it searches the values that the manifest's `tuning`
   declares.
2. `candidate` runs each step of the gate on the edited worktree instead of the checkout.
3. `keeping.decision_on` says whether the change stays. It is pure, and the place to add a rule for that.

`session_changes` reads from the journal which change is at hand and which builds it has to beat. A kept change is
a commit on `loop/<session>`; one that is taken back leaves its patch. `keeping.gains` feeds the bill, `section`
the report.

To add a stop rule: write it in `session_changes`, over the changes tried and their gains. When it ends the work,
let `briefing.brief` return a passed output that is not `edited`. The pattern begins another run only while
`brief.edited`, and ten more at most (its `next`). Test the rule in `tests/optimize`, and say it in `section`. A
rule over the outputs of this run alone belongs into that `next`. Rules of whole sessions are in `money/pivot`.
"""
