"""How each cloud announces that it takes a machine away.

Google Cloud: `instance/preempted` of its metadata server, about 30 s ahead. AWS:
`spot/instance-action` of IMDSv2 with a token, about 120 s ahead. Azure: scheduled events, at least
30 s ahead. Azure sends them to all machines of a set, so `loop` compares each with its own name.
"""

import contextlib
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LINK_LOCAL = "http://169.254.169.254"
"""Address of all three metadata servers: it needs no name lookup and never leaves the host."""
MAX_ANSWER_BYTES = 1 << 16  # Most bytes of an answer that are read; metadata answers have a few hundred.
TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{8,512}")
FIND_LIMIT_S = 0.3  # Time limit in seconds to find a server; it is one hop away and answers in milliseconds.
ANSWER_LIMIT_S = 2.0  # Time limit in seconds for one answer of a server that was found.
POLL_S = 1.0  # Seconds between questions: a notice comes 30 s ahead, and sessions need time to end.
UNWATCHED_AFTER_S = 15.0  # Seconds of silence after which the machine is reported as unwatched.
NO_CLOUD = "preemption watch: no metadata server answers, so this machine is in no cloud that loop knows"
ENDING_EVENTS = ("Preempt", "Terminate", "Redeploy", "Reboot")
"""Azure events that end all running programs; a freeze does not."""


class NoReply(Exception):
    """The server did not answer, not in time, or not in HTTP; the message says which."""


@dataclass(frozen=True)
class Reply:
    """One HTTP answer of a metadata server."""

    status: int
    text: str

    @property
    def fields(self) -> dict[str, Any]:
        """The answer's JSON object; empty if it is no object."""
        try:
            document = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}


@dataclass
class Server:
    """A cloud's metadata server. Each call asks again, or raises NoReply."""

    name: str
    """Name of the cloud, as in `CLOUDS`."""
    base_url: str
    limit_s: float = ANSWER_LIMIT_S
    """Time limit in seconds of each network operation."""

    def get_notice(self) -> str:
        """What will happen to the machine and when; empty if nothing is planned."""
        return CLOUDS[self.name](self)

    def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> Reply:
        """One HTTP answer of the server to a request with these headers. Raises NoReply."""
        address = urlsplit(self.base_url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=self.limit_s)
        try:
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            text = response.read(MAX_ANSWER_BYTES).decode(errors="replace")
        except TimeoutError as error:
            raise NoReply(f"{self.base_url} did not answer within {self.limit_s:g} s") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise NoReply(f"{self.base_url}: {reason}") from error
        finally:
            connection.close()
        return Reply(response.status, text)

    def unreadable_reply(self, answer: Reply) -> NoReply:
        """The error to raise for an answer without usable content."""
        return NoReply(f"{self.base_url} answers with status {answer.status} and {_shorten(answer.text)!r}")


def _gcp_notice(server: Server) -> str:
    """Google Cloud's notice; empty until the server answers `TRUE`: it is about to preempt the machine."""
    answer = server.ask("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    word = answer.text.strip().upper()
    if answer.status != 200 or word not in ("TRUE", "FALSE"):
        raise server.unreadable_reply(answer)
    return "gcp preempts this machine" if word == "TRUE" else ""


def _aws_notice(server: Server) -> str:
    """The action that Amazon plans and its time; empty while the server answers 404: nothing is planned. By
    IMDSv2, a request carries a token, which is asked for before it and lasts a minute."""
    reply = server.ask("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    if reply.status != 200 or not TOKEN.fullmatch(reply.text.strip()):
        raise server.unreadable_reply(reply)
    headers = {"X-aws-ec2-metadata-token": reply.text.strip()}
    answer = server.ask("/latest/meta-data/spot/instance-action", headers)
    if answer.status == 404:
        return ""
    event = answer.fields if answer.status == 200 else {}
    if "action" not in event:
        raise server.unreadable_reply(answer)
    time_text = _shorten(event.get("time", "once"))
    return f"aws is about to {_shorten(event['action'])} this machine, at {time_text}"


def _azure_machine(server: Server) -> dict[str, Any]:
    """What Microsoft's server says of this machine, as its `name` in events; empty if it describes none."""
    answer = server.ask("/metadata/instance?api-version=2021-02-01", {"Metadata": "true"})
    compute = answer.fields.get("compute")
    return compute if isinstance(compute, dict) else {}


def _azure_notice(server: Server) -> str:
    """The first planned event that ends this machine (any machine, if our name is unknown); empty for none."""
    answer = server.ask("/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    events = answer.fields.get("Events") if answer.status == 200 else None
    if not isinstance(events, list):
        raise server.unreadable_reply(answer)
    ending = [event for event in events if isinstance(event, dict) and event.get("EventType") in ENDING_EVENTS]
    name = ""
    with contextlib.suppress(NoReply):
        name = _azure_machine(server).get("name", "") if ending else ""
    for event in ending:
        if not event.get("Resources") or not name or name in event["Resources"]:
            kind, time_text = event["EventType"].lower(), _shorten(event.get("NotBefore") or "any moment")
            return f"azure is about to {kind} this machine, not before {time_text}"
    return ""


def _shorten(value: object) -> str:
    """A server's value on one line, at most 60 characters."""
    return " ".join(str(value).split())[:60]


CLOUDS: dict[str, Callable[[Server], str]] = {"gcp": _gcp_notice, "aws": _aws_notice, "azure": _azure_notice}
"""Name of a cloud to the function that asks its server for a notice."""
CHOICES = ("auto", *CLOUDS, "off")  # Values of the option `--watch-preemption`.


def make_cloud(name: str, limit_s: float = ANSWER_LIMIT_S) -> Server:
    """Server of a cloud, at the address in LOOP_METADATA_GCP, _AWS or _AZURE if it is set."""
    address = os.environ.get(f"LOOP_METADATA_{name.upper()}", LINK_LOCAL).rstrip("/")
    return Server(name, address, limit_s)


def find_cloud() -> Server | None:
    """The cloud that this machine is in; None if no metadata server answers within `FIND_LIMIT_S`."""
    for name in CLOUDS:
        with contextlib.suppress(NoReply):
            server = make_cloud(name, FIND_LIMIT_S)
            # Azure's first answer on events may take minutes, so it is asked for the machine.
            if name == "azure" and not _azure_machine(server):
                continue
            if name != "azure":
                server.get_notice()
            return make_cloud(name)
    return None


@dataclass
class Watch:
    """Polls for a preemption notice in a thread until closed. Reading its fields never waits."""

    choice: str = "auto"
    """One of CHOICES: a cloud, `auto` to find it, or `off`."""
    poll_s: float = POLL_S
    cloud: str | None = None
    """Name of the cloud that is polled; None before it is found, or if there is none."""
    notice: str = ""
    """Which cloud takes the machine away, how and when; empty before a notice."""
    is_settled: bool = False
    """True once the cloud is known and has answered, or no cloud was found."""
    failure: str = ""
    """Why the latest question has no answer; empty if it has one."""
    _answered_at_s: float = field(default_factory=time.monotonic)
    """Time of the last answer, by the monotonic clock."""
    _stop_event: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "Watch":
        """Start polling in a daemon thread. Returns the watch."""
        if self.choice == "off":
            self.is_settled = True
        else:
            threading.Thread(target=self._poll, name="preemption-watch", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop polling, without waiting for a pending answer."""
        self._stop_event.set()

    def explain_unwatched(self) -> tuple[str, ...]:
        """Why the machine is not watched for preemption, as a line for the report; empty if it is."""
        if self.choice == "off":
            return ("preemption watch: it was turned off",)
        if self.cloud is None:
            return (NO_CLOUD,) if self.is_settled else ("preemption watch: the session was over before it began",)
        if not self.is_settled:
            return (f"preemption watch of {self.cloud}: {self.failure or 'it never answered'}",)
        silence_s = time.monotonic() - self._answered_at_s
        if self.failure and silence_s > UNWATCHED_AFTER_S:
            return (f"preemption watch of {self.cloud}, for the last {silence_s:.0f} s: {self.failure}",)
        return ()

    def _poll(self) -> None:
        """Body of the thread: find the cloud, then poll it until it gives a notice or the watch is closed. The
        watch is settled once the cloud has answered, or if there is none."""
        cloud = find_cloud() if self.choice == "auto" else make_cloud(self.choice)
        if cloud is None:
            self.is_settled = True
            return
        self.cloud = cloud.name
        while not self.notice and not self._stop_event.is_set():
            try:
                self.notice = cloud.get_notice()
                self.failure, self.is_settled, self._answered_at_s = "", True, time.monotonic()
            except NoReply as error:
                self.failure = str(error)
            self._stop_event.wait(self.poll_s)
