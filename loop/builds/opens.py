"""Run a command and write down every file that it, and all that it starts, looks for: also those not there.

A filter of system calls (seccomp(2), user notification) has the kernel stop a process at each call that names a
file until this one has read the name. So programs that are linked statically, scripts, assemblers and linkers
are seen alike. It runs alone, `python -I -S opens.py <answer> <command...>`, and imports nothing of loop.
Where the kernel has no such filter the command runs all the same, and the answer says so. Linux 5.5 and later.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import select
import signal
import socket
import stat
import struct
import sys

READ, STAT, LIST, LINK, RUN, WRITE = "read", "stat", "list", "link", "run", "write"
"""What is done with a path: content is used, it is looked at, a folder is listed, a link read, it is started, it
changes."""
SOCKET, CONNECT = "socket", "connect"
SEEN = (
    "PATH", "HOME", "TMPDIR", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH",
    "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH", "LOOP_CHILD", "LOOP_STARTED_BY",
)  # fmt: skip
"""What the command sees of our environment: nothing else can change what it makes."""
AT_FDCWD = -100
CALLS: dict[str, tuple[int | None, int | None, int | None, int | None, str]] = {
    # name: number on x86-64 and arm64, index of the folder's handle, index of the path, what is done
    "open": (2, None, None, 0, "open"),
    "stat": (4, None, None, 0, STAT),
    "lstat": (6, None, None, 0, STAT),
    "access": (21, None, None, 0, STAT),
    "execve": (59, 221, None, 0, RUN),
    "truncate": (76, 45, None, 0, WRITE),
    "rename": (82, None, None, 1, WRITE),
    "mkdir": (83, None, None, 0, WRITE),
    "rmdir": (84, None, None, 0, WRITE),
    "creat": (85, None, None, 0, WRITE),
    "link": (86, None, None, 1, WRITE),
    "unlink": (87, None, None, 0, WRITE),
    "symlink": (88, None, None, 1, WRITE),
    "readlink": (89, None, None, 0, LINK),
    "openat": (257, 56, 0, 1, "open"),
    "mkdirat": (258, 34, 0, 1, WRITE),
    "newfstatat": (262, 79, 0, 1, STAT),
    "unlinkat": (263, 35, 0, 1, WRITE),
    "renameat": (264, 38, 2, 3, WRITE),
    "linkat": (265, 37, 2, 3, WRITE),
    "symlinkat": (266, 36, 1, 2, WRITE),
    "readlinkat": (267, 78, 0, 1, LINK),
    "faccessat": (269, 48, 0, 1, STAT),
    "renameat2": (316, 276, 2, 3, WRITE),
    "execveat": (322, 281, 0, 1, RUN),
    "statx": (332, 291, 0, 1, STAT),
    "openat2": (437, 437, 0, 1, "open"),
    "faccessat2": (439, 439, 0, 1, STAT),
    # without a path: what nobody can follow, and why
    "socket": (41, 198, None, None, SOCKET),
    "connect": (42, 203, None, None, CONNECT),
    "chroot": (161, 51, None, None, "it changes its root folder"),
    "pivot_root": (155, 41, None, None, "it changes its root folder"),
    "mount": (165, 40, None, None, "it mounts file systems"),
    "setns": (308, 268, None, None, "it enters a namespace"),
    "open_by_handle_at": (304, 265, None, None, "it opens files without their names"),
    "io_uring_setup": (425, 425, None, None, "it opens files by io_uring"),
}
MACHINES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
"""Machine to its column in CALLS, its name in the filter (AUDIT_ARCH), and the number of seccomp(2)."""
OLDEST = [5, 5]
"""The release of Linux that first lets a call go on after its notification."""
FOREIGN_CALL = 0x40000000
"""Where numbers of the x32 interface begin."""
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions of a filter (linux/bpf_common.h): load a word, jump if equal, jump if as large, return."""
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
NO_NEW_PRIVS, SUBREAPER, SET_FILTER, NEW_LISTENER = 38, 36, 1, 8
RECEIVE, SEND, GOES_ON = 0xC0502100, 0xC0182101, 1
NOTE = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags; number, machine, instruction, six arguments."""
QUIET_SOCKETS = ("/var/run/nscd/socket", "/run/nscd/socket")
"""glibc asks here for names of users; nobody has to answer."""
AF_UNIX, AF_NETLINK = 1, 16
LONGEST = 4096

Signature = list[int] | None


class Kernel:
    """What differs from machine to machine. Raises OSError where loop does not know it."""

    def __init__(self) -> None:
        if sys.platform != "linux" or platform.machine() not in MACHINES:
            raise OSError(f"not on {platform.system()} {platform.machine()}")
        release = platform.release().split(".")
        if [int(part) if part.isdigit() else 0 for part in release[:2]] < OLDEST:  # A call could not go on.
            raise OSError(f"Linux {platform.release()} is too old")
        os.close(os.pidfd_open(os.getpid()))  # Python 3.9, and a sandbox that has it.
        self.column, self.name, self.seccomp = MACHINES[platform.machine()]
        numbered = ((call[1] if self.column else call[0], call[2:]) for call in CALLS.values())
        self.calls = {number: how for number, how in numbered if number is not None}

    def filter(self) -> bytes:
        """The program: notify of the calls above and of any other machine's, allow the rest."""
        numbers = sorted(self.calls)
        rows = [(LOAD, 0, 0, 4), (EQUAL, 0, len(numbers) + 3, self.name), (LOAD, 0, 0, 0)]
        rows.append((AT_LEAST, len(numbers) + 1, 0, FOREIGN_CALL))
        rows += [(EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
        rows += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
        return b"".join(struct.pack("=HBBI", *row) for row in rows)

    def listen(self) -> int:
        """Put this process and all that it starts under the filter; the handle on which the kernel notifies."""
        libc = ctypes.CDLL(None, use_errno=True)
        rows = ctypes.create_string_buffer(self.filter())
        program = struct.pack("=HxxxxxxQ", (len(rows) - 1) // 8, ctypes.addressof(rows))
        libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        handle: int = libc.syscall(self.seccomp, SET_FILTER, NEW_LISTENER, program)
        if handle < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return handle


class Opens:
    """What was looked for so far."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.here, self.begun = kernel, os.getcwd(), False
        self.paths: dict[str, tuple[Signature, set[str]]] = {}
        """Path, relative where it was so in our folder: what it was at first sight, what is done with it."""
        self.changed: list[str] = []
        """What was read before it was written."""
        self.unknown: dict[str, None] = {}
        """Why something cannot be followed."""

    def note(self, handle: int) -> None:
        """Take one notification, and let its process go on."""
        data = bytearray(NOTE.size)
        try:
            fcntl.ioctl(handle, RECEIVE, data, True)
        except OSError:  # It ended meanwhile.
            return
        number, pid, _, call, machine, _, *arguments = NOTE.unpack(data)
        self.begun = self.begun or CALLS["execve"][self.kernel.column] == call
        try:
            if self.begun:  # Before the command there are we.
                self._see(pid, call if machine == self.kernel.name else -1, arguments)
        except (OSError, struct.error) as error:
            self.unknown[f"what a process looks for cannot be read ({error})"] = None
        with contextlib.suppress(OSError):
            fcntl.ioctl(handle, SEND, struct.pack("=QqiI", number, 0, 0, GOES_ON))

    def _see(self, pid: int, call: int, arguments: list[int]) -> None:
        if call not in self.kernel.calls:
            self.unknown["a program for another kind of processor runs"] = None
            return
        base, at, what = self.kernel.calls[call]
        if at is None:
            self._meet(pid, what, arguments)
            return
        name = text(pid, arguments[at])
        if name:
            does = opened(arguments[at + 1], pid, call) if what == "open" else {what}
            self._add(self._place(pid, name, AT_FDCWD if base is None else arguments[base]), does)

    def _meet(self, pid: int, why: str, arguments: list[int]) -> None:
        """Something that cannot be followed, or only looks like it."""
        if why == SOCKET:
            why = "" if arguments[0] in (AF_UNIX, AF_NETLINK) else "it asks another machine"
        elif why == CONNECT:
            family, name = address(pid, arguments[1], arguments[2])
            why = "" if family != AF_UNIX or name in QUIET_SOCKETS else f"it asks another process ({name})"
        if why:
            self.unknown[why] = None

    def _place(self, pid: int, name: str, handle: int) -> str:
        if name.startswith("/"):
            return name
        handle = ctypes.c_int(handle & 0xFFFFFFFF).value
        folder = os.readlink(f"/proc/{pid}/cwd" if handle == AT_FDCWD else f"/proc/{pid}/fd/{handle}")
        return name if folder == self.here else f"{folder}/{name}"

    def _add(self, path: str, does: set[str]) -> None:
        if path not in self.paths:
            self.paths[path] = (signature(path), set())
        seen, done = self.paths[path]
        if WRITE in does and READ in done and WRITE not in done and seen and stat.S_ISREG(seen[0]):
            self.changed.append(path)
        done |= does

    def answer(self) -> dict[str, object]:
        """All of it, for JSON: what the command itself makes is left out."""
        looked = {path: [seen, sorted(does)] for path, (seen, does) in self.paths.items() if WRITE not in does}
        return {"looked": looked, "changed": self.changed, "unknown": list(self.unknown)}


def opened(how: int, pid: int, call: int) -> set[str]:
    """What a file is opened for, by the flags of open(2) or the structure of openat2(2)."""
    if call == CALLS["openat2"][0]:
        (how,) = struct.unpack("=Q", memory(pid, how, 8))
    if how & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        return {WRITE}
    return {LIST} if how & os.O_DIRECTORY else {READ}


def signature(path: str) -> Signature:
    """Mode, size, times of change, number and device; None where there is nothing."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return [found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


def memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of another process, as many of them as there are."""
    handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(handle, size, address)
    finally:
        os.close(handle)


def text(pid: int, address: int) -> str:
    """A name in the memory of another process; empty for none."""
    data = memory(pid, address, 256) if address else b""
    if data and b"\0" not in data:
        data = memory(pid, address, LONGEST)
    return os.fsdecode(data.partition(b"\0")[0])


def address(pid: int, at: int, size: int) -> tuple[int, str]:
    """Family and, for a socket of this machine, name of what is connected to."""
    data = memory(pid, at, min(size, 128)) if size >= 2 else b"\0\0"
    return int.from_bytes(data[:2], sys.byteorder), os.fsdecode(data[2:].strip(b"\0").partition(b"\0")[0])


def begin(kernel: Kernel, command: list[str], ours: socket.socket) -> None:
    """In the child: hand the listening handle over, then become the command."""
    try:
        handle = kernel.listen()
        socket.send_fds(ours, [b"+"], [handle])
        os.close(handle)
    except OSError as error:
        ours.send(f"-{error.strerror}".encode())
    ours.close()
    try:
        become(command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def become(command: list[str]) -> None:
    """Become the command, in the environment that a build sees."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # By Python, not by whoever started us.
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(command[0], command, {name: os.environ[name] for name in SEEN if name in os.environ})


def follow(handle: int, pid: int, opens: Opens) -> None:
    """Take notifications until the command has ended."""
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while ended not in (ready := dict(poll.poll())):
        if ready[handle] & select.POLLIN:
            opens.note(handle)
    os.close(ended)


def run(command: list[str]) -> tuple[int, dict[str, object]]:
    """The status with which a command ended, as wait(2) gives it, and what it looked for."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)  # What it leaves behind is ours, and so is known.
    ours, theirs = socket.socketpair()
    opens = Opens(Kernel())
    pid = os.fork()
    if pid == 0:
        ours.close()
        begin(opens.kernel, command, theirs)
    theirs.close()
    said, handles, _, _ = socket.recv_fds(ours, 1024, 1)
    if not handles:
        return os.waitpid(pid, 0)[1], unseen(said[1:].decode())
    follow(handles[0], pid, opens)
    status = os.waitpid(pid, 0)[1]
    if runs_on():
        opens.unknown["it leaves something running"] = None
    return status, opens.answer()


def runs_on() -> bool:
    """Whether something that the command started still runs."""
    with contextlib.suppress(ChildProcessError):
        while (left := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            pass
        return left == 0
    return False


def unseen(why: str) -> dict[str, object]:
    """The answer where nothing could be seen."""
    return {"unknown": [f"this system does not say what a compiler reads ({why})"]}


def main() -> None:
    """Run it, write the answer, and end as it ended."""
    place, *command = sys.argv[1:]
    try:
        status, answer = run(command)
    except (OSError, AttributeError) as error:  # An older kernel, or an older Python, without one of the calls.
        status, answer = None, unseen(str(error))
    with contextlib.suppress(OSError), open(place, "w") as file:  # A full disk: then nothing is known.
        json.dump(answer, file)
    if status is None:
        become(command)
    elif os.WIFSIGNALED(status):
        end_by(os.WTERMSIG(status))
    else:
        os._exit(os.WEXITSTATUS(status))


def end_by(number: int) -> None:
    """End as something does that is ended by a signal."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
