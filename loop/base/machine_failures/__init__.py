"""Failures of the machine are neither verdicts nor the target's fault: a full disk, no memory, no permission.

They are measured. What a program printed decides nothing: it only tells how much is taken for too little.
"""

from loop.base.machine_failures.folders import Folders as Folders
from loop.base.machine_failures.gauge import Gauge as Gauge
from loop.base.machine_failures.reasons import behind as behind
