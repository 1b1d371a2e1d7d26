"""What a cloud's metadata server says of the machine: whether it is about to be taken away.

Begin with `watch`: a thread asks the metadata server once a second, and a session reads what it found without
waiting. `clouds` holds the protocol of each provider (GCP, AWS, Azure), and makes one request with a deadline over
the whole of it, where a time-out would bound each read alone.

A notice carries the provider and the time. `loop` then pauses the session and exits with 75. A server that stops
answering is reported as an unwatched machine, never as a machine without a notice.
"""

from loop.cloud.clouds import CHOICES, CLOUDS, Cloud, Notice, Watch, make_cloud

__all__ = ["CHOICES", "CLOUDS", "Cloud", "Notice", "Watch", "make_cloud"]
