"""Rented machines: the user's `hosts.yaml` (`hosts`), and preemption notices.

Begin with `clouds.Watch`: a thread polls the metadata server once a second, and a session reads its
latest answer without waiting. After a notice, `loop` pauses the session and exits with 75. A server
that stops answering is reported as an unwatched machine, never as one without a notice.
"""
