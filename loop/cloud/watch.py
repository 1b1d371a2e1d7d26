"""The watch over a session: a thread that asks the metadata server, so that nothing waits for its answers."""

import contextlib
import threading
import time
from dataclasses import dataclass, field

from loop.cloud.clouds import CLOUDS, FOUND_WITHIN_S, Cloud, NoReply, make_cloud

CHOICES = ("auto", *CLOUDS, "off")
"""What `--watch-preemption` takes."""
ANSWER_WITHIN_S = 2.0
"""Longest time for one answer of a server that is there."""
POLL_S = 1.0
"""Between two questions: the shortest notice is 30 s, and a session has to have ended 5 s after it."""
BLIND_S = 15.0
"""A server that has not answered for so long watches over nothing, and that is said."""
NOBODY = "preemption watch: no metadata server answers, so this machine is in no cloud that loop knows"


@dataclass(frozen=True)
class Notice:
    """That the machine is about to be taken away."""

    text: str
    """Which cloud does what, and when."""
    at: float
    """When it was seen, on the monotonic clock."""


@dataclass
class Watch:
    """Asks until it is closed. Everything it found can be read at any time, and reading never waits."""

    choice: str = "auto"
    poll_s: float = POLL_S
    cloud: str | None = None
    """The cloud that is asked."""
    notice: Notice | None = None
    settled: bool = False
    """Whether it is known where this machine is, and what is planned for it, if anybody said."""
    trouble: str = ""
    """Why the last question has no answer."""
    _answered: float = field(default_factory=time.monotonic)
    _over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "Watch":
        """Begin to ask, in a thread that ends with the program."""
        if self.choice == "off":
            self.settled = True
        else:
            threading.Thread(target=self._work, name="preemption-watch", daemon=True).start()
        return self

    def close(self) -> None:
        """Ask no more; does not wait for an answer that is under way."""
        self._over.set()

    def unwatched(self) -> tuple[str, ...]:
        """What has to be said where nothing watches, or what did is silent by now."""
        if self.choice == "off":
            return ("preemption watch: it was turned off",)
        if self.cloud is None:
            return (NOBODY,) if self.settled else ("preemption watch: the session was over before it began",)
        if not self.settled:
            return (f"preemption watch of {self.cloud}: {self.trouble or 'it never answered'}",)
        silent = time.monotonic() - self._answered
        if self.trouble and silent > BLIND_S:
            return (f"preemption watch of {self.cloud}, for the last {silent:.0f} s: {self.trouble}",)
        return ()

    def _work(self) -> None:
        cloud = find(FOUND_WITHIN_S) if self.choice == "auto" else make_cloud(self.choice)
        if cloud is None:
            self.settled = True
            return
        self.cloud = cloud.name
        while self.notice is None and not self._over.is_set():
            self._ask(cloud)
            self._over.wait(self.poll_s)

    def _ask(self, cloud: Cloud) -> None:
        try:
            text = cloud.notice(ANSWER_WITHIN_S)
        except NoReply as error:
            self.trouble = str(error)
            return
        self.trouble, self.settled, self._answered = "", True, time.monotonic()
        if text is not None:
            self.notice = Notice(text, self._answered)


def find(limit_s: float) -> Cloud | None:
    """The cloud that this machine is in; None where none answers in time. All are asked at once."""
    here: list[Cloud] = []

    def look(cloud: Cloud) -> None:
        with contextlib.suppress(NoReply):
            here.extend([cloud] if cloud.here(limit_s) else [])

    asking = [threading.Thread(target=look, args=(make_cloud(name),), daemon=True) for name in CLOUDS]
    end = time.monotonic() + limit_s
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(max(0.0, end - time.monotonic()))
    return min(here, key=lambda cloud: list(CLOUDS).index(cloud.name), default=None)
