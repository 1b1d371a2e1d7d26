"""The only place that knows git. It reads the user's repository, and edits only in worktrees of loop's own."""

from loop.repository.reading import changed_below, changes, export, revision, text_at

__all__ = ["changed_below", "changes", "export", "revision", "text_at"]
