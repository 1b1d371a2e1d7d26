"""Children that are hard to end, as a program of its own: `python nasty.py KIND FOLDER`.

Each process of a kind notes its number and start time in FOLDER/pid-KIND, and ends by itself after a while.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LASTS_S = 90
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
PTRACE_ATTACH = 16
SLEEP = ["sleep", str(LASTS_S)]
GENERATIONS_S = 0.02


def note(pid: int = 0) -> None:
    """Note number and start time of a process (0: this one)."""
    pid = pid or os.getpid()
    born = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    with open(os.path.join(sys.argv[2], f"pid-{os.path.basename(sys.argv[1]).replace(' ', '-')}"), "a") as file:
        file.write(f"{pid}-{born}\n")


def child(work: Callable[[], object]) -> int:
    """Fork; the child does this, then sleeps to its end."""
    pid = os.fork()
    if not pid:
        note()
        work()
        time.sleep(LASTS_S)
        os._exit(0)
    return pid


def orphan(work: Callable[[], object]) -> None:
    """Fork a grandchild that becomes an orphan at once."""
    pid = os.fork()
    if not pid:
        child(work)
        os._exit(0)
    os.waitpid(pid, 0)


def deaf() -> None:
    """Ignore all signals that end a process and can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def daemon() -> None:
    """Leave session, folder, environment and files, and be another program."""
    os.setsid()
    os.chdir("/")
    closed()
    os.execve("/bin/sleep", SLEEP, {})


def closed() -> None:
    """Close all files, the lock of the step among them."""
    os.closerange(0, 256)


def flood() -> None:
    while True:
        os.write(1, b"x" * 65536)


def chain() -> None:
    """Become another process fifty times a second."""
    end = time.monotonic() + LASTS_S
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        note()
        time.sleep(GENERATIONS_S)


def renamed() -> None:
    """Another name and another command line."""
    LIBC.prctl(PR_SET_NAME, b"kworker/u4:1", 0, 0, 0)
    os.execv("/bin/sleep", ["[kworker/u4:1]", str(LASTS_S)])


def group(*, stopped: bool) -> None:
    """A process group of three, stopped or not."""
    os.setpgid(0, 0)
    for _ in range(2):
        child(lambda: None)
    if stopped:
        os.killpg(0, signal.SIGSTOP)


def terminal() -> None:
    """Be the leader of a session with a terminal of its own."""
    master, slave = os.openpty()
    os.setsid()
    os.close(os.open(os.ttyname(slave), os.O_RDWR))
    os.set_inheritable(master, True)


def traced() -> None:
    """Trace a child of one's own, which stands still for it."""
    LIBC.ptrace(PTRACE_ATTACH, child(lambda: None), 0, 0)


def blocked() -> None:
    """Block every signal that can be."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))


def forgetful() -> None:
    """Clear the signal that the parent's death would send."""
    LIBC.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
    os.setsid()


def reaper() -> None:
    """Adopt the orphans below."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    orphan(os.setsid)


def hidden() -> None:
    """Deny others to read its entries of /proc."""
    LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def homeless() -> None:
    """Work in a folder that is deleted."""
    place = Path(sys.argv[2], "gone")
    place.mkdir()
    os.chdir(place)
    place.rmdir()


def busy() -> None:
    end = time.monotonic() + LASTS_S
    while time.monotonic() < end:
        pass


def many() -> None:
    """A tree of forty."""
    for _ in range(3):
        child(lambda: [child(lambda: [child(lambda: None) for _ in range(3)]) for _ in range(3)])


def other_program(*words: str) -> None:
    """A program that starts another one."""
    note(subprocess.Popen([*words, *SLEEP], stdin=subprocess.DEVNULL).pid)


def namespaced() -> None:
    """In a namespace of its own, where that is allowed; a plain child elsewhere."""
    probe = subprocess.run(["unshare", "-Urpf", "true"], capture_output=True, check=False)
    other_program(*(["unshare", "-Urpf"] if probe.returncode == 0 else []))


KINDS: dict[str, Callable[[], object]] = {
    "ignores TERM": lambda: child(deaf),
    "setsid": lambda: child(os.setsid),
    "double fork": lambda: orphan(lambda: None),
    "double fork and setsid": lambda: orphan(os.setsid),
    "daemon with emptied environment": lambda: orphan(daemon),
    "closed files": lambda: child(closed),
    "own PID namespace": namespaced,
    "stopped": lambda: os.kill(child(lambda: None), signal.SIGSTOP),
    "output flood": lambda: child(flood),
    "fork chain": lambda: orphan(chain),
    "fork chain in sessions of its own": lambda: orphan(lambda: (os.setsid(), chain())),
    "renamed": lambda: orphan(renamed),
    "nohup": lambda: other_program("nohup"),
    "stopped group": lambda: child(lambda: group(stopped=True)),
    "holds a terminal": lambda: child(terminal),
    "traced": lambda: child(traced),
    "blocks all signals": lambda: orphan(blocked),
    "forgets its parent": lambda: orphan(forgetful),
    "adopts orphans": lambda: child(reaper),
    "not dumpable": lambda: orphan(hidden),
    "in a folder that is gone": lambda: orphan(homeless),
    "busy": lambda: orphan(busy),
    "a tree of forty": many,
    "env -i": lambda: other_program("env", "-i", "setsid"),
}


def main() -> None:
    """Start the kind, say so, and wait."""
    note()
    KINDS[sys.argv[1]]()
    time.sleep(0.2)
    Path(sys.argv[2], "ready").touch()
    time.sleep(LASTS_S)


if __name__ == "__main__":
    main()
