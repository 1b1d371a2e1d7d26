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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

MAX_ANSWER_BYTES = 1 << 16  # Most bytes of an answer that are read; a few hundred are usual.
TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{8,512}")
FIND_LIMIT_S = 0.3  # Time limit in seconds to find a server, which answers in milliseconds.
ANSWER_LIMIT_S = 2.0  # Time limit in seconds for one answer of a server that was found.
POLL_S = 1.0  # Seconds between questions: a notice comes 30 s ahead, and sessions need time to end.
UNWATCHED_AFTER_S = 15.0  # Seconds of silence after which the machine is reported as unwatched.
NO_CLOUD = "no metadata server answers, so this machine is in no cloud that loop knows"
ENDING_EVENTS = ("Preempt", "Terminate", "Redeploy", "Reboot")
"""Azure events that end all running programs; a freeze does not."""
CLOUDS = ("gcp", "aws", "azure")
CHOICES = ("auto", *CLOUDS, "off")  # Values of the option `--watch-preemption`.


class NoReply(Exception):
    """The server did not answer, not in time, or not in HTTP; the message says which."""


def base_url(cloud: str) -> str:
    """Address of a cloud's metadata server. LOOP_METADATA_GCP, _AWS or _AZURE replaces it."""
    return os.environ.get(f"LOOP_METADATA_{cloud.upper()}", "http://169.254.169.254").rstrip("/")


def ask(
    cloud: str, path: str, headers: Mapping[str, str], limit_s: float, method: str = "GET"
) -> tuple[int, str, dict[str, Any]]:
    """One answer of a cloud's metadata server: status, text, and its JSON object (empty if it is
    none). `limit_s`: time limit of each network operation. Raises NoReply."""
    url = base_url(cloud)
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=limit_s)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        text = response.read(MAX_ANSWER_BYTES).decode(errors="replace").strip()
    except TimeoutError as error:
        raise NoReply(f"{url} did not answer within {limit_s:g} s") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NoReply(f"{url}: {reason}") from error
    finally:
        connection.close()
    document = None
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(text)
    return response.status, text, document if isinstance(document, dict) else {}


def get_notice(cloud: str, limit_s: float = ANSWER_LIMIT_S) -> str:
    """What its cloud will do to this machine and when; empty: nothing. Else raises NoReply."""
    if cloud == "gcp":
        path = "/computeMetadata/v1/instance/preempted"
        status, text, _ = ask(cloud, path, {"Metadata-Flavor": "Google"}, limit_s)
        if status == 200 and text.upper() in ("TRUE", "FALSE"):
            return "gcp preempts this machine" if text.upper() == "TRUE" else ""
    elif cloud == "aws":  # By IMDSv2, a request carries a token, which lasts a minute.
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        status, text, _ = ask(cloud, "/latest/api/token", lifetime, limit_s, method="PUT")
        if status == 200 and TOKEN.fullmatch(text):
            token = {"X-aws-ec2-metadata-token": text}
            path = "/latest/meta-data/spot/instance-action"
            status, text, event = ask(cloud, path, token, limit_s)
            if status == 404:
                return ""
            if status == 200 and "action" in event:
                action, when = _shorten(event["action"]), _shorten(event.get("time", "once"))
                return f"aws is about to {action} this machine, at {when}"
    else:
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        status, text, document = ask(cloud, path, {"Metadata": "true"}, limit_s)
        events = document.get("Events")
        if status == 200 and isinstance(events, list):
            events = [event for event in events if isinstance(event, dict)]
            ending = [event for event in events if event.get("EventType") in ENDING_EVENTS]
            name = ""  # Unknown: then any machine's event counts.
            with contextlib.suppress(NoReply):
                name = _azure_machine(limit_s).get("name", "") if ending else ""
            for event in ending:
                if not event.get("Resources") or not name or name in event["Resources"]:
                    kind = event["EventType"].lower()
                    when = _shorten(event.get("NotBefore") or "any moment")
                    return f"azure is about to {kind} this machine, not before {when}"
            return ""
    raise NoReply(f"{base_url(cloud)} answers with status {status} and {_shorten(text)!r}")


def _azure_machine(limit_s: float) -> dict[str, Any]:
    """What Azure's server says of this machine, as its `name` in events; empty: nothing."""
    path = "/metadata/instance?api-version=2021-02-01"
    _, _, document = ask("azure", path, {"Metadata": "true"}, limit_s)
    compute = document.get("compute")
    return compute if isinstance(compute, dict) else {}


def _shorten(value: object) -> str:
    """A server's value on one line, at most 60 characters."""
    return " ".join(str(value).split())[:60]


def find_cloud() -> str | None:
    """The cloud of this machine; None if no metadata server answers within `FIND_LIMIT_S`."""
    for name in CLOUDS:
        with contextlib.suppress(NoReply):
            if name != "azure":
                get_notice(name, FIND_LIMIT_S)
                return name
            if _azure_machine(FIND_LIMIT_S):  # Its first answer on events may take minutes.
                return name
    return None


@dataclass
class Watch:
    """Polls for a preemption notice in a thread until closed. Reading its fields never waits."""

    choice: str = "auto"  # One of CHOICES: a cloud, `auto` to find it, or `off`.
    poll_s: float = POLL_S
    cloud: str | None = None  # The cloud that is polled; None before it is found, or for none.
    notice: str = ""  # Which cloud takes the machine away, how and when; empty before a notice.
    is_settled: bool = False  # True once the cloud is known and has answered, or none was found.
    failure: str = ""  # Why the latest question has no answer; empty if it has one.
    _answered_at_s: float = field(default_factory=time.monotonic)  # Of the last answer.
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
        """Why the machine is not watched for preemption, as a line to report; empty if it is."""
        if self.choice == "off":
            return ("preemption watch: it was turned off",)
        if self.cloud is None:
            reason = NO_CLOUD if self.is_settled else "the session was over before it began"
            return (f"preemption watch: {reason}",)
        if not self.is_settled:
            return (f"preemption watch of {self.cloud}: {self.failure or 'it never answered'}",)
        silence_s = time.monotonic() - self._answered_at_s
        if self.failure and silence_s > UNWATCHED_AFTER_S:
            duration = f"for the last {silence_s:.0f} s"
            return (f"preemption watch of {self.cloud}, {duration}: {self.failure}",)
        return ()

    def _poll(self) -> None:
        """Body of the thread: find the cloud, then poll it until a notice or the watch's end."""
        self.cloud = find_cloud() if self.choice == "auto" else self.choice
        if self.cloud is None:
            self.is_settled = True
            return
        while not self.notice and not self._stop_event.is_set():
            try:
                self.notice = get_notice(self.cloud)
                self.failure, self.is_settled, self._answered_at_s = "", True, time.monotonic()
            except NoReply as error:
                self.failure = str(error)
            self._stop_event.wait(self.poll_s)
