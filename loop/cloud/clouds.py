"""How each cloud says that it takes a machine away.

Google Cloud: instance/preempted of its metadata server, about 30 s ahead.
AWS: spot/instance-action of IMDSv2, which wants a token first, about 120 s ahead.
Azure: scheduled events, at least 30 s ahead for a preemption; they go to all machines of a set, so each is held
against the machine's own name.
"""

import contextlib
import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LARGEST = 1 << 16
"""Bytes of an answer that are read; a metadata server's are a few hundred."""


class NoReply(Exception):
    """Nobody answered, or not in time, or not in HTTP; the message says which."""


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    text: str


def ask(base: str, path: str, headers: Mapping[str, str], *, limit_s: float, method: str = "GET") -> Reply:
    """One answer, all of it within `limit_s` seconds (a host name's look-up excepted). Raises NoReply."""
    begun, where = time.monotonic(), urlsplit(base)
    try:
        with contextlib.closing(
            http.client.HTTPConnection(where.hostname or "", where.port, timeout=limit_s)
        ) as to:
            to.connect()
            # A time-out bounds each read alone: a server that sends a byte a second would hold it for hours.
            hang_up = threading.Timer(limit_s, _shut, [to.sock])
            hang_up.start()
            try:
                to.request(method, path, headers=dict(headers))
                response = to.getresponse()
                text = response.read(LARGEST).decode(errors="replace")
            finally:
                hang_up.cancel()
            named = {name.lower(): value for name, value in response.getheaders()}
            if time.monotonic() - begun >= limit_s:
                raise TimeoutError
            return Reply(response.status, named, text)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if time.monotonic() - begun >= limit_s:
            raise NoReply(f"{base} did not answer within {limit_s:g} s") from error
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NoReply(f"{base}: {reason}") from error


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


LINK_LOCAL = "http://169.254.169.254"
"""The address of all three: no name has to be looked up, and nothing beyond the host is asked."""
TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{8,512}")
TOKEN_TTL_S = 21600
NAME_WITHIN_S = 0.5
FOUND_WITHIN_S = 0.3
"""A metadata server is a hop away and answers in milliseconds."""
TAKES_AWAY = ("Preempt", "Terminate", "Redeploy", "Reboot")
"""Scheduled events of Azure after which nothing that runs is left; a freeze passes."""


@dataclass
class Gcp:
    """Google Cloud."""

    base: str
    name: str = "gcp"

    def here(self, limit_s: float) -> bool:
        """Its server names itself in a header."""
        return self._preempted(limit_s).headers.get("metadata-flavor") == "Google"

    def notice(self, limit_s: float) -> str | None:
        """`TRUE` once the machine is to be preempted."""
        word = _one_of(self, self._preempted(limit_s), ("TRUE", "FALSE"))
        return "gcp preempts this machine" if word == "TRUE" else None

    def spot(self, limit_s: float) -> bool:
        """Whether it may be preempted: spot machines and the older preemptible ones say TRUE."""
        path = "/computeMetadata/v1/instance/scheduling/preemptible"
        answer = ask(self.base, path, {"Metadata-Flavor": "Google"}, limit_s=limit_s)
        return _one_of(self, answer, ("TRUE", "FALSE")) == "TRUE"

    def _preempted(self, limit_s: float) -> Reply:
        path = "/computeMetadata/v1/instance/preempted"
        return ask(self.base, path, {"Metadata-Flavor": "Google"}, limit_s=limit_s)


@dataclass
class Aws:
    """Amazon's cloud, by the second version of its metadata service."""

    base: str
    name: str = "aws"
    token: str = field(default="", repr=False)

    def here(self, limit_s: float) -> bool:
        """It hands out a token, and with it the name of an instance."""
        answer = self._get("/latest/meta-data/instance-id", limit_s / 2)
        return answer.status == 200 and answer.text.startswith("i-")

    def notice(self, limit_s: float) -> str | None:
        """404 while nothing is planned, then what is done and when."""
        answer = self._get("/latest/meta-data/spot/instance-action", limit_s / 2)
        if answer.status == 404:
            return None
        planned = _object(answer) if answer.status == 200 else None
        if planned is None or "action" not in planned:
            raise unreadable(self, answer)
        return f"aws is about to {_word(planned['action'])} this machine, at {_word(planned.get('time', 'once'))}"

    def spot(self, limit_s: float) -> bool:
        """Whether it was bought as spot."""
        answer = self._get("/latest/meta-data/instance-life-cycle", limit_s / 2)
        return _one_of(self, answer, ("SPOT", "ON-DEMAND", "SCHEDULED")) == "SPOT"

    def _get(self, path: str, limit_s: float) -> Reply:
        """One answer; a token that has expired is replaced."""
        if self.token:
            answer = self._with_token(path, limit_s)
            if answer.status != 401:
                return answer
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        token = ask(self.base, "/latest/api/token", ttl, limit_s=limit_s, method="PUT")
        if token.status != 200 or not TOKEN.fullmatch(token.text.strip()):
            raise unreadable(self, token)
        self.token = token.text.strip()
        return self._with_token(path, limit_s)

    def _with_token(self, path: str, limit_s: float) -> Reply:
        return ask(self.base, path, {"X-aws-ec2-metadata-token": self.token}, limit_s=limit_s)


@dataclass
class Azure:
    """Microsoft's cloud."""

    base: str
    name: str = "azure"
    machine: str = ""
    """Name of this machine, as events call it."""

    def here(self, limit_s: float) -> bool:
        """Its server describes a machine under `compute`."""
        instance = _object(self._get("/metadata/instance?api-version=2021-02-01", limit_s)) or {}
        compute = instance.get("compute")
        self.machine = str(compute.get("name", "")) if isinstance(compute, dict) else ""
        return isinstance(compute, dict)

    def notice(self, limit_s: float) -> str | None:
        """The first event that takes this machine away. The first call of all may take two minutes, says Azure."""
        answer = self._get("/metadata/scheduledevents?api-version=2020-07-01", limit_s)
        document = _object(answer) if answer.status == 200 else None
        events = document.get("Events") if document is not None else None
        if not isinstance(events, list):
            raise unreadable(self, answer)
        return next((self._says(event) for event in events if self._concerns(event)), None)

    def spot(self, limit_s: float) -> bool:
        """Whether its priority is Spot; empty for a machine without a priority."""
        path = "/metadata/instance/compute/priority?api-version=2021-02-01&format=text"
        return _one_of(self, self._get(path, limit_s), ("SPOT", "LOW", "REGULAR", "")) in ("SPOT", "LOW")

    def _concerns(self, event: Any) -> bool:
        if not isinstance(event, dict) or event.get("EventType") not in TAKES_AWAY:
            return False
        machines = event.get("Resources") or []
        return not machines or not self._name() or self.machine in machines

    def _name(self) -> str:
        """Name of this machine; empty while it cannot be had, and then every event counts."""
        if not self.machine:
            with contextlib.suppress(NoReply):
                self.here(NAME_WITHIN_S)
        return self.machine

    def _says(self, event: dict[str, Any]) -> str:
        kind, when = _word(event["EventType"]).lower(), _word(event.get("NotBefore") or "any moment")
        return f"azure is about to {kind} this machine, not before {when}"

    def _get(self, path: str, limit_s: float) -> Reply:
        return ask(self.base, path, {"Metadata": "true"}, limit_s=limit_s)


Cloud = Gcp | Aws | Azure
"""`here`: whether this machine is one of its own. `spot`: whether it may be taken away. `notice`: what will happen
to it. Each raises NoReply if unknown."""
CLOUDS: dict[str, type[Cloud]] = {"gcp": Gcp, "aws": Aws, "azure": Azure}


def make_cloud(name: str) -> Cloud:
    """A cloud whose server is asked at LOOP_METADATA_GCP, _AWS or _AZURE, else at the usual address."""
    return CLOUDS[name](os.environ.get(f"LOOP_METADATA_{name.upper()}", LINK_LOCAL).rstrip("/"))


def terms() -> str:
    """`gcp spot`, `aws on_demand`; empty where no metadata server says. Asked before a job begins."""
    for name in CLOUDS:
        cloud = make_cloud(name)
        try:
            if cloud.here(FOUND_WITHIN_S):
                return f"{name} {'spot' if cloud.spot(FOUND_WITHIN_S) else 'on_demand'}"
        except NoReply:
            continue
    return ""


def unreadable(cloud: "Cloud", answer: Reply) -> NoReply:
    """An answer that is none."""
    return NoReply(f"{cloud.base} answers with status {answer.status} and {_word(answer.text)!r}")


def _one_of(cloud: "Cloud", answer: Reply, words: tuple[str, ...]) -> str:
    """The word that a server answers, in capitals. Raises NoReply for any other."""
    word = answer.text.strip().upper()
    if answer.status != 200 or word not in words:
        raise unreadable(cloud, answer)
    return word


def _object(answer: Reply) -> dict[str, Any] | None:
    try:
        document = json.loads(answer.text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _word(value: object) -> str:
    """A value of the server's in one short line."""
    return " ".join(str(value).split())[:60]


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
