"""The only room that runs git. It reads the user's repository, and edits only in its own worktrees.

Begin with `worktree.git`, which runs the program. The user's index, hooks and branches stay.
Until a repository is trusted, no program of its configuration runs (filters, helpers, transports).
- It reads commits, uncommitted files, files of an earlier commit, the commits between two others;
  the files of a repository that another machine needs, and the branches that come back.
- A worktree is a folder where a session edits a target; outside git: a new repository with a copy.
"""
