"""What a commit may do to the bundled `cpu` kernel: make it slower, wrong, unbuildable, or only other text.

Files are a mapping of their path, from the target's folder, to their text. Each edit finds its place by the text
that stands there, and fails where it is not.
"""

import re
from collections.abc import Callable, Mapping

from tests.conftest import ROOT

Files = dict[str, str]
Edit = Callable[[Files], None]
SOURCE = ROOT / "kernels" / "attention"
MANIFEST, BINDINGS, SECOND = "target.yaml", "cpu/bindings.cpp", "cpu/instantiations.cpp"
SECTIONS = ("faults", "variants", "tuning", "components")
"""Of the manifest: what names other kernels than the one on the CPU."""


def pristine() -> Files:
    """The bundled target with its CPU kernel alone."""
    paths = [SOURCE / "interface.h", SOURCE / "parts.h", *sorted((SOURCE / "cpu").iterdir())]
    files = {str(path.relative_to(SOURCE)): path.read_text() for path in paths}
    files["README.md"] = "# Attention\n\nOn a processor: blocked online softmax.\n"
    files[MANIFEST] = manifest((SOURCE / MANIFEST).read_text())
    return files


def manifest(text: str) -> str:
    """A manifest with the variant and the tuning of the CPU only."""
    head, *sections = re.split(r"^(?=[a-z]+:)", text, flags=re.MULTILINE)
    kept = [part for part in sections if not part.startswith(tuple(f"{name}:" for name in SECTIONS))]
    named = {part.partition(":")[0]: part for part in sections}
    return "".join([head, *kept, _only(named["variants"], "cpu"), _only(named["tuning"], "scores")])


def _only(section: str, name: str) -> str:
    """A section of the manifest with one of its entries."""
    title, _, rest = section.partition("\n")
    entries = re.split(r"^(?=  [a-z_0-9]+:)", rest, flags=re.MULTILINE)
    (found,) = [one for one in entries if one.startswith(f"  {name}:")]
    return f"{title}\n{found}"


def replaced(file: str, old: str, new: str) -> Edit:
    """Another text in one place of a file."""

    def edit(files: Files) -> None:
        assert files[file].count(old) == 1, f"{file}: {old!r} is there {files[file].count(old)} times"
        files[file] = files[file].replace(old, new)

    return edit


def added(text: str, file: str = "cpu/vector.h") -> Edit:
    """Text at the end of a file; by default one that every other includes."""

    def edit(files: Files) -> None:
        files[file] += text

    return edit


def every(*edits: Edit) -> Edit:
    """One after the other."""

    def edit(files: Files) -> None:
        for one in edits:
            one(files)

    return edit


# Slower by some 8 %, and as right as before


STAIRCASE = "    score_staircase<N>(block, keys, 0, depth_, scores);\n"
WEIGHED = "    for (int i = 0; i < 4; i++) four[i] = load(scores + (j + i) * lanes);\n"
EXPONENTIALS = "    weights(four, max, headroom);\n    sum +="
CHAIN = "{ return std::max<int64_t>(32, (depth + 1) / 2); }"


def scored_again(percent: int) -> Edit:
    """So many of a tile's keys are scored twice; scores are nearly half of the work."""
    head = f"    Keys head = keys;\n    head.count = (keys.count * {percent} + 99) / 100;\n"
    again = f"{head}    score_staircase<N>(block, head, 0, depth_, scores);\n{STAIRCASE}"
    return replaced("cpu/attention.h", STAIRCASE, again)


def weighed_again() -> Edit:
    """Half of the exponentials are worked out twice: about 3 %."""
    held = WEIGHED.replace("load(scores + (j + i) * lanes)", "hold(load(scores + (j + i) * lanes))")
    twice = EXPONENTIALS.replace("    sum +=", f"{held}    weights(four, max, headroom);\n    sum +=")
    return replaced("cpu/softmax.h", EXPONENTIALS, twice)


SLOWER: tuple[Edit, ...] = (
    scored_again(15),
    replaced("cpu/products.h", CHAIN, "{ return std::max<int64_t>(7, (depth + 1) / 9); }"),
    every(scored_again(15), weighed_again()),
)

# Wrong


WRONG: tuple[Edit, ...] = (
    replaced("cpu/softmax.h", "lane_numbers() >= first_lane", "lane_numbers() > first_lane"),
    replaced("cpu/softmax.h", "load(running_sum) * decay[0] + sum", "load(running_sum) + sum"),
    replaced("cpu/block.h", "1.44269504088896341f", "1.4426f"),
    replaced("cpu/products.h", "d == 0 ? tile[r][n]", "d >= 0 ? tile[r][n]"),
    replaced(
        "cpu/products.h", "tile[r][n] : load(to) * decay[n] + tile[r][n]", "tile[r][n] : load(to) + tile[r][n]"
    ),
)

# The recipe


KINDS = ("float", "Bfloat16", "Float16")
OPENING = "namespace {\n\nusing namespace attention;\n"


def split(kinds: tuple[str, ...] = KINDS, visible: str = "") -> Edit:
    """Two translation units: the second instantiates the kernel, for these types."""

    def edit(files: Files) -> None:
        declared = "".join(f"extern template {visible}bool attend<{kind}>(const Problem &);\n" for kind in KINDS)
        defined = "".join(f"template {visible}bool attend<{kind}>(const Problem &);\n" for kind in kinds)
        outer = "namespace attention {{\n{0}}}  // namespace attention\n"
        replaced(BINDINGS, OPENING, f"{outer.format(declared)}\n{OPENING}")(files)
        replaced(MANIFEST, f"sources: [{BINDINGS}]", f"sources: [{BINDINGS}, {SECOND}]")(files)
        files[SECOND] = f'// The kernel, for each type.\n#include "schedule.h"\n\n{outer.format(defined)}'

    return edit


def moved_bindings(files: Files) -> None:
    """The only translation unit has another name."""
    replaced(MANIFEST, f"sources: [{BINDINGS}]", "sources: [cpu/entry.cpp]")(files)
    files["cpu/entry.cpp"] = files.pop(BINDINGS)


RECIPES: Mapping[str, Edit] = {
    "flags": replaced(MANIFEST, "-ffp-contract=fast", "-ffp-contract=off"),
    "units": split(),
    "unloaded": split(KINDS[:2]),
    "unlinked": split(KINDS[:2], '__attribute__((visibility("hidden"))) '),
    "file": moved_bindings,
}
"""By name: no fused multiply-adds; two translation units; two of them without one of the instantiations, so that
the library cannot be loaded, or not even linked; and the one unit in a file of another name."""

# Nothing that a computer sees


NAMES = (
    ("chain_length", "features_of_a_chain"),
    ("place_block", "locate_block"),
    ("transpose_queries", "turn_queries"),
    ("weigh_keys", "softmax_of_keys"),
    ("seen_by", "visible_to"),
    ("available_threads", "threads_at_hand"),
    ("begin_block", "open_block"),
    ("end_block", "close_block"),
    ("divide_up", "quotient_up"),
    ("attend_blocks", "visit_blocks"),
    ("kScoreRows", "kRowsOfScores"),
    ("kSerialWork", "kWorkOfOneThread"),
    ("describe", "problem_of"),
    ("headroom", "spare_bits"),
    ("share", "per_thread"),
    ("inverse", "reciprocal"),
)


def renamed(number: int) -> Edit:
    """One name for another, everywhere."""
    old, new = NAMES[number]

    def edit(files: Files) -> None:
        for path in [path for path in files if path.startswith("cpu/")]:
            files[path] = re.sub(rf"\b{old}\b", new, files[path])

    return edit


MOVES = (
    ("// Features that one chain", "}\n\n", "cpu/products.h", "cpu/block.h"),
    ("// How the queries of a head are cut", "};\n\n", "cpu/attention.h", "cpu/workspace.h"),
    ("// Multiply-adds below which", ";\n\n", "cpu/schedule.h", "cpu/attention.h"),
    ("// Rows of a register tile", ";\n\n", "cpu/products.h", "cpu/block.h"),
)
"""How a definition begins with its remark, how it ends, the file that it leaves, and the one that it goes to."""
CLOSING = "}  // namespace attention\n"


def moved(number: int) -> Edit:
    """A definition, to the end of another file."""
    begins, ends, source, place = MOVES[number]

    def edit(files: Files) -> None:
        text = files[source]
        begin = text.index(begins)
        end = text.index(ends, begin) + len(ends)
        files[source] = text[:begin] + text[end:]
        head, closing, tail = files[place].rpartition(CLOSING)
        files[place] = f"{head}{text[begin:end]}{closing}{tail}"

    return edit


HEADERS = ("attention", "block", "elements", "products", "schedule", "vector", "workspace")


def remarked(number: int) -> Edit:
    """A comment more, in one of the files."""
    return added(f"// Remark {number}.\n", f"cpu/{HEADERS[number % len(HEADERS)]}.h")


# No build


def lost(files: Files) -> None:
    """A header that was not committed."""
    del files["cpu/softmax.h"]


BROKEN: tuple[Edit, ...] = (
    added("inline int unfinished( {\n"),
    added('#include "not_committed.h"\n'),
    added('static_assert(sizeof(int) == 2, "for another machine");\n'),
    lost,
    replaced(MANIFEST, "[-std=c++17, -O3", "[-fno-such-flag, -std=c++17, -O3"),
    replaced(MANIFEST, "compiler: g++", "compiler: g++-of-tomorrow"),
    replaced(MANIFEST, "entry: attention_cpu", "entry: [attention_cpu"),
)
