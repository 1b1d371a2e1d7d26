"""The same failure elsewhere has the same fingerprint; the failures in the records of a session."""

from typing import Any

import pytest

from loop.model.output import CommandOutput
from loop.model.record import Finished
from loop.store.fingerprints import collect_failures, find_error_line, fingerprints_of_step, normalise_line
from loop.timing.against_known_good import CompareOutput
from tests.makers import make_check, make_finished, make_session_head, make_speed, make_verify

HEAD = make_session_head(id="s")
CRASHED = make_verify(make_check(right=False, status="crashed", message="killed by signal 11 (SIGSEGV)"))

UNDECLARED = """a.cpp: In function \u2018int main()\u2019:
a.cpp:2:33: error: \u2018undeclared_thing\u2019 was not declared in this scope
    2 | int main(){ undeclared_thing(3); }
      |             ^~~~~~~~~~~~~~~~
"""
LINKED = """/usr/bin/ld: /tmp/ccNrQK2x.o: in function `main':
c.cpp:(.text+0xa): undefined reference to `foo'
collect2: error: ld returned 1 exit status
"""
TRACEBACK = """Traceback (most recent call last):
  File "/home/a/x.py", line 3, in <module>
    import torch
ModuleNotFoundError: No module named 'torch'
"""

ALIKE = {
    "a name that g++ does not know": (
        UNDECLARED,
        "cpu: /home/other/kernels/cpu.cpp:812:3: 'undeclared_thing' was not declared in this scope",
        "\x1b[01m\x1b[Kb.cpp:9:1:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[K\u2018undeclared_thing\u2019 "
        "was not declared in this scope; did you mean \u2018declared_thing\u2019?",
    ),
    "a header that is missing": (
        "b.cpp:1:10: fatal error: nothere.h: No such file or directory\ncompilation terminated.",
        "/srv/build/b.cpp:7:10: fatal error: nothere.h: No such file or directory",
    ),
    "a name that nvcc does not know": (
        'kernels/x.cu(41): error: identifier "foo" is undefined\n1 error detected in the compilation of "x.cu".',
        '/home/u/k/y.cu(7): error: identifier "foo" is undefined',
    ),
    "a symbol that is not there at load": (
        "ours does not load: /home/a/.cache/44764e106988149f6bbaaf69a1cf6728/kernel.so: undefined symbol: f",
        "./d.so: undefined symbol: f",
    ),
    "a symbol that is not there at link": (
        LINKED,
        "/usr/bin/ld: /var/tmp/ccAAAAAA.o:other.cpp:(.text+0x1f): undefined reference to `foo'",
    ),
    "a toolkit that is too new for the driver": (
        "nvcc 13.0 needs driver R580 or newer, this machine has 550.54, which runs code up to CUDA 12.4",
        "nvcc 13.1 needs driver R580 or newer, this machine has 535.129.03, which runs code up to CUDA 12.2",
    ),
    "no memory on the GPU": (
        "CUDA error: out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 139.8 GiB in all",
        "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)",
    ),
    "no memory": ("terminate called after throwing an instance of 'std::bad_alloc'", "MemoryError"),
    "a module that is missing": (TRACEBACK, TRACEBACK.replace("/home/a/x.py", "C:/y.py").replace("3", "77")),
    "a revision that git does not know": (
        "git rev-parse in /home/a/b: fatal: ambiguous argument 'v1': unknown revision or path not in the tree.",
        "fatal: ambiguous argument 'v1': unknown revision or path not in the tree.",
    ),
    "wrong elements": (
        "3 of 4096 elements wrong on B1 H1 S64 D64 float32",
        "17 of 65536 elements wrong on B2 H8 S128 D64 float32",
    ),
    "an address and a time": (
        "2026-11-21T05:19:00.123Z worker 4711 at 0x7ffee3c0 gave up",
        "2025-01-02 23:59:59 worker 12 at 0xdeadbeef01 gave up",
    ),
}
OTHERS = (
    "a.cpp:2:33: error: 'another_thing' was not declared in this scope",
    "fatal error: other.h: No such file or directory",
    "./d.so: undefined symbol: g",
    "undefined reference to `bar'",
    "CUDA error: no kernel image is available for execution on the device",
    "CUDA error: an illegal memory access was encountered",
    "ptxas error   : Entry function '_Z3fooPf' uses too much shared data (0x1a000 bytes, 0xc000 max)",
    "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    "nvcc fatal   : Unsupported gpu architecture 'compute_89'",
    "error: pathspec 'nope' did not match any file(s) known to git",
    "fatal: not a git repository (or any of the parent directories): .git",
    "/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by ./kernel.so)",
    "exit 127: ncu: not found",
    "exit 139: ncu: not found",
    "the compiler was killed after 61.2 s",
)


@pytest.mark.parametrize("texts", ALIKE.values(), ids=ALIKE)
def test_the_same_failure_elsewhere_is_known_again(texts: tuple[str, ...]) -> None:
    """Machine, path, line, number, quotes and colours do not matter."""
    lines = [normalise_line(find_error_line(text)) for text in texts]
    assert 1 == len({*lines}), lines


def test_the_line_that_names_the_error_tells_failures_apart() -> None:
    """The error, symbol, header, version or GPU matter; without such a line, the last line does."""
    texts = [*(texts[0] for texts in ALIKE.values()), *OTHERS]
    assert len(texts) == len({normalise_line(find_error_line(text)) for text in texts})
    log = "a.cpp:1:1: warning: error: maybe\n" + LINKED
    assert "undefined reference" in find_error_line(log)
    assert "the last thing said" == find_error_line("one\ntwo\nthe last thing said\n\n")


def failed(step: str = "build", **fields: Any) -> Finished:
    return make_finished(step, **{"status": "failed", "message": "x.cu(4): error: broken", **fields})


def test_a_wrong_variant_is_known_by_its_kind_of_failure_not_by_numbers() -> None:
    """Workload and count of wrong elements do not matter."""
    few = make_verify(make_check(right=False, wrong=3))
    many = make_verify(make_check("B2 H2 S128 D64 float32", right=False, wrong=900))
    (first,), (second,) = (fingerprints_of_step(failed("verify", output=output), "s") for output in (few, many))
    assert ("cpu wrong", "cpu") == (first.text, first.subject)
    assert first.key == second.key
    (changed,) = fingerprints_of_step(failed("verify", output=few), "other sources")
    assert first.key != changed.key, "another mistake looks alike"
    crashed = [fingerprints_of_step(failed("verify", output=CRASHED), sources) for sources in ("s", "t")]
    assert crashed[0][0].key != crashed[1][0].key


def test_a_finding_without_a_text_of_its_own_is_known_on_the_same_sources_alone() -> None:
    """A slow build and an open search; an error's text is the same failure on all sources."""
    speed = make_speed(word="slower", ratio=0.9, against="known_good")
    slow = CompareOutput(ok=False, message="against the known good slower", verdicts=(speed,))
    for fields, is_same in (({"output": slow}, False), ({"message": "a.cpp:4: error: no member b"}, True)):
        first, second = (fingerprints_of_step(failed(**fields), sources)[0].key for sources in ("s", "t"))
        assert is_same == (first == second)


def test_a_command_is_known_by_the_line_that_names_its_error() -> None:
    """Without such a line, the exit status and the last line count."""
    text = "building\nx.c:3:1: error: broken thing\nmake: *** [x] Error 1"
    output = CommandOutput(ok=False, message="exit 2: make", code=2, seconds=1.0, output=text)
    (named,) = fingerprints_of_step(failed("s1", action="command.run", message=output.message, output=output), "s")
    assert "broken thing" == named.text
    silent = output.model_copy(update={"code": 3, "output": "gave up at 17:03"})
    (last,) = fingerprints_of_step(
        failed("s1", action="command.run", message="exit 3: gave up at 17:03", output=silent), "s"
    )
    assert last.text.startswith("exit 3: gave up at N")


def test_a_failure_that_a_later_attempt_got_past_was_cured_in_the_session() -> None:
    """A resume cured it; another failure of the same step is no cure."""
    passed = make_finished("build", attempt=2)
    assert [("s", "kernel.build")] == [
        (row.cured_by, row.action) for row in collect_failures(HEAD, [failed(), passed])
    ]
    assert [None] == [row.cured_by for row in collect_failures(HEAD, [passed, failed()])]
    assert [None, None] == [row.cured_by for row in collect_failures(HEAD, [failed(), failed(message="other")])]
