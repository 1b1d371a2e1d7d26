"""What a cloud's metadata server says of the machine: whether it is about to be taken away.

Begin with `clouds.Watch`: a thread asks the metadata server once a second, and a session reads what it found
without waiting. A class for each provider (GCP, AWS, Azure) holds its protocol.

`loop` pauses a session that has a notice, and exits with 75. A server that stops answering is reported as an
unwatched machine, never as a machine without a notice.
"""

from loop.cloud.clouds import CHOICES, CLOUDS, Cloud, Watch, make_cloud

__all__ = ["CHOICES", "CLOUDS", "Cloud", "Watch", "make_cloud"]
