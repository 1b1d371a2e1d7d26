"""What a cloud's metadata server says of the machine: whether it is about to be taken away."""

from loop.cloud.clouds import CLOUDS, Cloud, make_cloud
from loop.cloud.watch import CHOICES, Notice, Watch

__all__ = ["CHOICES", "CLOUDS", "Cloud", "Notice", "Watch", "make_cloud"]
