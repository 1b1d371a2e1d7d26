"""The only room that knows git. It reads the user's repository, and edits only in worktrees of loop's own.

Begin in `git`: the one function that runs the program. The user's index, hooks and branches stay as they are.
Until a repository is trusted, no program that its configuration names may run (filters, textconv, helpers,
transports).
- `reading`: commit, uncommitted files, files as an earlier commit had them, and the line between two commits.
- `worktree`: folders in which a target may be edited, and whose each is. A target outside git is copied into a
  repository of its own. Submodules are filled from the checkout's.
- `carried`: what another machine needs of a repository, and the branches that come back.
"""

from loop.repository.reading import changes, export, revision, root_of, takes_back

__all__ = ["changes", "export", "revision", "root_of", "takes_back"]
