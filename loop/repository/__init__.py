"""The only place that knows git. It reads the user's repository, and edits only in worktrees of loop's own."""

from loop.repository.reading import changes, export, revision

__all__ = ["changes", "export", "revision"]
