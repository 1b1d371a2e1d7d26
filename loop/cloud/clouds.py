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
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

LINK_LOCAL = "http://169.254.169.254"
"""The address of all three: no name has to be looked up, and nothing beyond the host is asked."""
LARGEST = 1 << 16
"""Bytes of an answer that are read; a metadata server's are a few hundred."""
TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{8,512}")
TOKEN_TTL_S = 21600
FOUND_WITHIN_S = 0.3
"""A metadata server is a hop away and answers in milliseconds."""
ANSWER_WITHIN_S = 2.0
"""Longest time for one answer of a server that is there."""
POLL_S = 1.0
"""Between two questions: the shortest notice is 30 s, and a session has to have ended 5 s after it."""
BLIND_S = 15.0
"""A server that has not answered for so long watches over nothing, and that is said."""
NOBODY = "preemption watch: no metadata server answers, so this machine is in no cloud that loop knows"
TAKES_AWAY = ("Preempt", "Terminate", "Redeploy", "Reboot")
"""Scheduled events of Azure after which nothing that runs is left; a freeze passes."""


class NoReply(Exception):
    """Nobody answered, or not in time, or not in HTTP; the message says which."""


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    text: str

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object that it is; empty for anything else."""
        try:
            document = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}


def ask_metadata(
    base: str, path: str, headers: Mapping[str, str], *, limit_s: float, method: str = "GET"
) -> Reply:
    """One answer, no part of which takes more than `limit_s` seconds. Raises NoReply."""
    where = urlsplit(base)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=limit_s)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        text = response.read(LARGEST).decode(errors="replace")
    except TimeoutError as error:
        raise NoReply(f"{base} did not answer within {limit_s:g} s") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NoReply(f"{base}: {reason}") from error
    finally:
        connection.close()
    return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, text)


@dataclass
class Cloud:
    """A cloud's metadata server. What it says is asked anew each time; NoReply where that is unknown."""

    base: str
    name: ClassVar[str] = ""
    headers: ClassVar[dict[str, str]] = {}

    def here(self, limit_s: float) -> bool:
        """Whether this machine is one of its own."""
        raise NotImplementedError

    def notice(self, limit_s: float) -> str:
        """What will happen to the machine, and when; empty where nothing is planned."""
        raise NotImplementedError

    def spot(self, limit_s: float) -> bool:
        """Whether the machine may be taken away."""
        raise NotImplementedError

    def get(self, path: str, limit_s: float) -> Reply:
        """One answer."""
        return ask_metadata(self.base, path, self.headers, limit_s=limit_s)

    def word(self, path: str, limit_s: float, *words: str) -> str:
        """The word that a server answers, in capitals. Raises NoReply for any other than these."""
        answer = self.get(path, limit_s)
        word = answer.text.strip().upper()
        if answer.status != 200 or word not in words:
            raise self.unreadable(answer)
        return word

    def unreadable(self, answer: Reply) -> NoReply:
        """An answer that is none."""
        return NoReply(f"{self.base} answers with status {answer.status} and {_short(answer.text)!r}")


class Gcp(Cloud):
    """Google Cloud."""

    name = "gcp"
    headers: ClassVar[dict[str, str]] = {"Metadata-Flavor": "Google"}
    instance = "/computeMetadata/v1/instance"

    def here(self, limit_s: float) -> bool:
        """Its server names itself in a header."""
        return self.get(f"{self.instance}/preempted", limit_s).headers.get("metadata-flavor") == "Google"

    def notice(self, limit_s: float) -> str:
        """`TRUE` once the machine is to be preempted."""
        word = self.word(f"{self.instance}/preempted", limit_s, "TRUE", "FALSE")
        return "gcp preempts this machine" if word == "TRUE" else ""

    def spot(self, limit_s: float) -> bool:
        """Spot machines and the older preemptible ones say TRUE."""
        return self.word(f"{self.instance}/scheduling/preemptible", limit_s, "TRUE", "FALSE") == "TRUE"


@dataclass
class Aws(Cloud):
    """Amazon's cloud, by the second version of its metadata service: each question carries a token."""

    name = "aws"
    token: str = field(default="", repr=False)

    def here(self, limit_s: float) -> bool:
        """It hands out a token, and with it the name of an instance."""
        answer = self.get("/latest/meta-data/instance-id", limit_s)
        return answer.status == 200 and answer.text.startswith("i-")

    def notice(self, limit_s: float) -> str:
        """404 while nothing is planned, then what is done and when."""
        answer = self.get("/latest/meta-data/spot/instance-action", limit_s)
        if answer.status == 404:
            return ""
        planned = answer.fields if answer.status == 200 else {}
        if "action" not in planned:
            raise self.unreadable(answer)
        when = _short(planned.get("time", "once"))
        return f"aws is about to {_short(planned['action'])} this machine, at {when}"

    def spot(self, limit_s: float) -> bool:
        """Whether it was bought as spot."""
        words = ("SPOT", "ON-DEMAND", "SCHEDULED")
        return self.word("/latest/meta-data/instance-life-cycle", limit_s, *words) == "SPOT"

    def get(self, path: str, limit_s: float) -> Reply:
        """One answer; a token that has expired is replaced."""
        answer = self._with_token(path, limit_s / 2) if self.token else None
        if answer is not None and answer.status != 401:
            return answer
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        token = ask_metadata(self.base, "/latest/api/token", ttl, limit_s=limit_s / 2, method="PUT")
        if token.status != 200 or not TOKEN.fullmatch(token.text.strip()):
            raise self.unreadable(token)
        self.token = token.text.strip()
        return self._with_token(path, limit_s / 2)

    def _with_token(self, path: str, limit_s: float) -> Reply:
        return ask_metadata(self.base, path, {"X-aws-ec2-metadata-token": self.token}, limit_s=limit_s)


@dataclass
class Azure(Cloud):
    """Microsoft's cloud."""

    name = "azure"
    headers: ClassVar[dict[str, str]] = {"Metadata": "true"}
    machine: str = ""
    """Name of this machine, as events call it; empty while it cannot be had, and then every event counts."""

    def here(self, limit_s: float) -> bool:
        """Its server describes a machine under `compute`."""
        compute = self.get("/metadata/instance?api-version=2021-02-01", limit_s).fields.get("compute")
        self.machine = str(compute.get("name", "")) if isinstance(compute, dict) else ""
        return isinstance(compute, dict)

    def notice(self, limit_s: float) -> str:
        """The first event that takes this machine away. The first call of all may take two minutes, says Azure."""
        answer = self.get("/metadata/scheduledevents?api-version=2020-07-01", limit_s)
        events = answer.fields.get("Events") if answer.status == 200 else None
        if not isinstance(events, list):
            raise self.unreadable(answer)
        ends = [event for event in events if isinstance(event, dict) and event.get("EventType") in TAKES_AWAY]
        if ends and not self.machine:
            with contextlib.suppress(NoReply):
                self.here(FOUND_WITHIN_S)
        for event in ends:
            machines = event.get("Resources")
            if not machines or not self.machine or self.machine in machines:
                kind, when = event["EventType"].lower(), _short(event.get("NotBefore") or "any moment")
                return f"azure is about to {kind} this machine, not before {when}"
        return ""

    def spot(self, limit_s: float) -> bool:
        """Whether its priority is Spot; empty for a machine without a priority."""
        path = "/metadata/instance/compute/priority?api-version=2021-02-01&format=text"
        return self.word(path, limit_s, "SPOT", "LOW", "REGULAR", "") in ("SPOT", "LOW")


def _short(value: object) -> str:
    """A value of the server's in one short line."""
    return " ".join(str(value).split())[:60]


CLOUDS: dict[str, type[Cloud]] = {cloud.name: cloud for cloud in (Gcp, Aws, Azure)}
CHOICES = ("auto", *CLOUDS, "off")
"""What `--watch-preemption` takes."""


def make_cloud(name: str) -> Cloud:
    """A cloud whose server is asked at LOOP_METADATA_GCP, _AWS or _AZURE, else at the usual address."""
    return CLOUDS[name](os.environ.get(f"LOOP_METADATA_{name.upper()}", LINK_LOCAL).rstrip("/"))


def find_cloud(limit_s: float) -> Cloud | None:
    """The cloud that this machine is in; None where none answers in time."""
    for name in CLOUDS:
        cloud = make_cloud(name)
        with contextlib.suppress(NoReply):
            if cloud.here(limit_s):
                return cloud
    return None


def terms_of_machine() -> str:
    """`gcp spot`, `aws on_demand`; empty where no metadata server says. Asked before a job begins."""
    cloud = find_cloud(FOUND_WITHIN_S)
    with contextlib.suppress(NoReply):
        if cloud is not None:
            return f"{cloud.name} {'spot' if cloud.spot(FOUND_WITHIN_S) else 'on_demand'}"
    return ""


@dataclass
class Watch:
    """Asks until it is closed. Everything it found can be read at any time, and reading never waits."""

    choice: str = "auto"
    poll_s: float = POLL_S
    cloud: str | None = None
    """The cloud that is asked."""
    notice: str = ""
    """That the machine is about to be taken away: which cloud does what, and when; empty before it."""
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
        """Find the cloud, then ask it until there is a notice."""
        cloud = find_cloud(FOUND_WITHIN_S) if self.choice == "auto" else make_cloud(self.choice)
        if cloud is None:
            self.settled = True
            return
        self.cloud = cloud.name
        while not self.notice and not self._over.is_set():
            try:
                self.notice = cloud.notice(ANSWER_WITHIN_S)
                self.trouble, self.settled, self._answered = "", True, time.monotonic()
            except NoReply as error:
                self.trouble = str(error)
            self._over.wait(self.poll_s)
