"""What can go wrong in a kernel, as edits: each operator applies at every place that has its form."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.mutants.source import Source, begin_of, closing, end_of

Edit = tuple[int, int, str]
"""Where the text begins and ends, and what stands there instead."""


@dataclass(frozen=True)
class Operator:
    """A kind of mistake."""

    name: str
    edits: Callable[[Source], Iterator[Edit]]
    share: float = 1.0
    """Of its mutants, how many are kept, drawn by their identity."""


def matches(pattern: str, change: Callable[[re.Match[str]], str] | str) -> Callable[[Source], Iterator[Edit]]:
    """An edit at every match of an expression in the code."""
    expression = re.compile(pattern)

    def edits(source: Source) -> Iterator[Edit]:
        for found in expression.finditer(source.code):
            yield found.start(), found.end(), found.expand(change) if isinstance(change, str) else change(found)

    return edits


def swaps(*pairs: tuple[str, str]) -> Callable[[Source], Iterator[Edit]]:
    """An edit at every match of the first of a pair."""

    def edits(source: Source) -> Iterator[Edit]:
        for pattern, instead in pairs:
            yield from matches(pattern, instead)(source)

    return edits


def altered(found: re.Match[str]) -> str:
    """A constant of an index map, wrong: a divisor doubled, a modulus or mask halved, a shift by one more."""
    number = int(found["number"])
    half = number // 2
    wrong = {"/": 2 * number, "%": half, "&": half, ">>": number + 1, "<<": number - 1, "*": half}
    return f"{found['left']} {found['operator']} {wrong[found['operator']]}"


def exchanged(found: re.Match[str]) -> str:
    """Division for remainder, and the other way round."""
    return f"{found['left']} {'%' if found['operator'] == '/' else '/'} "


def branches(source: Source) -> Iterator[Edit]:
    """`a ? b : c` is always b, and always c."""
    code = source.code
    for found in re.finditer(r" \? ", code):
        begin, middle = begin_of(code, found.start()), found.end()
        depth, at = 0, middle
        while depth or not code.startswith(" : ", at):
            depth += code.startswith(" ? ", at) - code.startswith(" : ", at)
            at += 1
        end = end_of(code, at + 3, through="?:&&||")
        yield begin, end, code[middle:at].strip()
        yield begin, end, code[at + 3 : end].strip()


def guards(source: Source) -> Iterator[Edit]:
    """What an `if` protects always happens; where it leaves (continue, break, return) it never does."""
    code = source.code
    for found in re.finditer(r"\bif (?:constexpr )?\(", code):
        end = closing(code, found.end() - 1)
        leaves = re.match(r"\)\s*(?:continue|break|return)\b", code[end:])
        yield found.end(), end, "false" if leaves else "true"


def conjuncts(source: Source) -> Iterator[Edit]:
    """One side of `and` holds always, one side of `or` never."""
    code, seen = source.code, set()
    for found in re.finditer(r"\s(&&|\|\|)\s", code):
        left = begin_of(code, found.start()), found.start()
        right = found.end(), end_of(code, found.end())
        for begin, end in (left, right):
            if (begin, end) not in seen:
                seen.add((begin, end))
                yield begin, end, "true" if found[1] == "&&" else "false"


def exponentials(source: Source) -> Iterator[Edit]:
    """A weight or a factor is 1."""
    for found in re.finditer(r"\bexp2_approx\(", source.code):
        yield found.start(), closing(source.code, found.end() - 1) + 1, "1.0f"


def areas(source: Source) -> Iterator[Edit]:
    """An area of shared memory is 256 bytes smaller, or what is behind it begins so much earlier."""
    for found in re.finditer(rf"\bint {AREAS} = ([^;]*);", source.code):
        yield found.start(1), found.end(1), f"({found[1]}) - 256"


def shuffles(source: Source) -> Iterator[Edit]:
    """A lane hears itself."""
    for found in re.finditer(r"\bshuffle_xor\(([^()]*), ([^,()]*)\)", source.code):
        yield found.start(), found.end(), found[1]


def calls(names: str) -> Callable[[Source], Iterator[Edit]]:
    """A call, as a statement or part of one, is left out."""

    def edits(source: Source) -> Iterator[Edit]:
        for found in re.finditer(rf"(?<!void )\b(?:{names})\(", source.code):
            end = closing(source.code, found.end() - 1) + 1
            if source.code[end] in ";,":
                yield found.start(), end, "void()"

    return edits


SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
COUNTS = r"(?:lane|thread|copy|piece)"
SHIFT = r"(?P<left>row|\d|\)|step|n)"
INDEX = r"(?P<left>\b(?:lane|thread|threadIdx\.x|half))"
AREAS = r"k(?:QueriesAt|ValuesAt|BarriersAt|KeysAt|Tile|Weights|Output|(?:Key|Query|Tile|Tiles|Merge|Shared)Bytes)"
BEGINNINGS = r"(?:problem\.diagonal|first_key|first_row|first|mine|feature|warp_row)"
SCALES = r"(?:shrink(?:\[(?:r|half|i / 2)\])?|factor|inverse|(?:problem\.)?scale_log2)"
MEETINGS = (
    r"mbarrier_wait|mbarrier_init|mbarrier_arrive|named_barrier_sync|named_barrier_arrive|wait_for_turn|pass_turn"
)
ARGUMENT = r"(?<=[(\s]){}(?=[,)])"
STRIDES = (
    (r"\bstrides\.head\b", "strides.batch"),
    (r"\bstrides\.batch\b", "strides.head"),
    (r"\bstrides\.row\b", "strides.head"),
    (r"\bo_strides\.head\b", "o_strides.batch"),
    (r"\bo_strides\.batch\b", "o_strides.head"),
    (r"\bo_strides\.row\b", "o_strides.head"),
    (r"\bblockIdx\.y\b", "blockIdx.z"),
    (r"\bblockIdx\.z\b", "blockIdx.y"),
    (r"\b(matrix|output|result)\.stride\b", r"\1.depth"),
    (r"\bproblem\.q_strides\b", "problem.k_strides"),
    (r"\bproblem\.k_strides\b", "problem.v_strides"),
    (r"\bproblem\.v_strides\b", "problem.k_strides"),
    (r"\bproblem\.o_strides\b", "problem.q_strides"),
    (r"\bproblem\.batches\) \* problem\.heads\b", "problem.heads) * problem.heads"),
)
OPERANDS = (
    (r"\bproblem\.q(?=,)", "problem.k"),
    (r"\bproblem\.k(?=,)", "problem.v"),
    (r"\bproblem\.v(?=,)", "problem.k"),
    (r"\bproblem\.keys\b", "problem.queries"),
    (r"\bproblem\.queries\b", "problem.keys"),
    (ARGUMENT.format("key_tile"), "value_tile"),
    (ARGUMENT.format("value_tile"), "key_tile"),
    (r"(?<=[(\s])keys(?=, first_key|\.template copy)", "values"),
    (r"(?<=[(\s])values(?=, first_key|\.template copy)", "keys"),
    (r"\bb\[0\](?=, b\[1\])", "b[2]"),
    (r"\bldmatrix_x4_transposed\b", "ldmatrix_x4"),
    (r"\bldmatrix_x4(?=\()", "ldmatrix_x4_transposed"),
)

USED = (
    (r"(?<!SharedAddress )\bkeys_used(?=\()", "values_used"),
    (r"(?<!SharedAddress )\bvalues_used(?=\()", "keys_used"),
    (r"(?<!SharedAddress )\bqueries_used(?=\()", "queries_there"),
    (r"(?<!SharedAddress )\bkeys_there(?=\()", "values_there"),
    (r"(?<!SharedAddress )\bvalues_there(?=\()", "keys_there"),
    (r"(?<!SharedAddress )\bqueries_there(?=\()", "queries_used"),
    (r"\bplaces\.keys(?=\()", "places.values"),
    (r"\bplaces\.values(?=\()", "places.keys"),
    (r"(?<!prefetch_tensor_map\()\bmaps\.k\b", "maps.v"),
    (r"(?<!prefetch_tensor_map\()\bmaps\.v\b", "maps.k"),
    (r"(?<!prefetch_tensor_map\()\bmaps\.q\b", "maps.k"),
)
"""Barriers and places of a ring, one taken for another."""
COUNTED = (
    (r"(?<=, )4(?: \* Shape::kGroups)?(?=\);)", "1"),
    (r"\b2 \* kWarpGroup\b", "kWarpGroup"),
    (r"(?<=expect\(there, Shape::)kQueryBytes", "kQueryBox"),
    (r"(?<=expect\(there, Shape::)kTileBytes", "kKeyBox"),
    (r"(?<=\()1 \+ group\b", "1"),
    (r"(?<=\()1 \+ Shape::kGroups \+ group\b", "1 + group"),
)
"""How many arrive, and where."""
PHASES = (
    (r"\bparity \^ 1", "parity"),
    (r"\bqueries_parity \^ 1", "queries_parity"),
    (r"(?<=, )((?:keys\.|values\.|queries_)parity)(?=\);)", r"\1 ^ 1"),
    (r"\bqueries_parity \^= 1", ""),
    (r", parity \^= 1\b", ""),
    (r"\b(?:keys|values)\.next\(\)", ""),
    (r"\bstage = 0(?=, parity)", "stage = 1"),
)
"""Which phase of which stage."""
BOXES = (
    (r" \+ \(?box \* Shape::k(?:Query|Key)Box\b(?= \+)", " + (0"),
    (r" \+ box \* Shape::k(?:Query|Key)Box\b(?=,)", ""),
    (r"\b64 \* box\b", "0"),
    (r"(?<=Box \+ )within\b", "0"),
    (r" \+ group \* Shape::kQueryBytes\b", ""),
    (r" \+ stage \* Shape::kTileBytes\b", ""),
    (r" \+ \(step \* 16 \* Shape::kLine >> 4\)", ""),
    (r"\bkLines\b(?=,)", "kOperandLayout<16, 4 * Shape::kLine>"),
    (r"\bkColumns\b(?=,)", "kOperandLayout<8 * Shape::kLine, 8 * Shape::kLine>"),
    (r"\bstep > 0(?=\))", "true"),
)
"""Where an operand or a box begins."""

OPERATORS = (
    Operator("barrier dropped", matches(r"\b__syncthreads\(\)", "")),
    Operator("wait dropped", matches(r"\bcp_async_wait<\d>\(\)", "")),
    Operator("wait loosened", matches(r"(?<=\bcp_async_wait)<(\d)>", lambda m: f"<{int(m[1]) + 1}>")),
    Operator("commit dropped", matches(r"\bcp_async_commit\(\)", "")),
    Operator("warp barrier dropped", matches(r"\b__syncwarp\(\)", "")),
    Operator("comparison shifted", matches(r" (<=|>=|<|>) ", lambda m: f" {SHIFTED[m[1]]} "), 0.3),
    Operator("bound shifted", matches(r" ([+-]) 1\b(?![.\d])", r" \1 0"), 0.4),
    Operator("rounding up dropped", matches(r" \+ ([\w:]+) - 1\) / \1\b", r") / \1")),
    Operator("lane map altered", matches(INDEX + r" (?P<operator>[/%&*]|>>) (?P<number>\d+)", altered)),
    Operator("lane map exchanged", matches(rf"(?P<left>\b{COUNTS}) (?P<operator>[/%]) ", exchanged)),
    Operator("swizzle altered", matches(SHIFT + r" (?P<operator>&|<<|>>) (?P<number>\d+)", altered)),
    Operator("swizzle dropped", matches(r"(\w+) \^ (?:turn\(row\)|\(\w+ << 5\))", r"\1")),
    Operator("swizzle added", matches(r" \^ ", " + ")),
    Operator("rescale dropped", swaps((rf"(?<=[*] ){SCALES}", "1.0f"), (rf"(?<=[*]= ){SCALES}", "1.0f"),
                                      (rf"\b{SCALES} (?=[*] )", "1.0f "))),
    Operator("exponential dropped", exponentials),
    Operator("masked logit is 0", matches(r"\bkMasked\b(?! =)", "0.0f")),
    Operator("guard dropped", guards),
    Operator("branch taken", branches, 0.3),
    Operator("conjunct dropped", conjuncts, 0.5),
    Operator("stride swapped", swaps(*STRIDES)),
    Operator("operand swapped", swaps(*OPERANDS), 0.3),
    Operator("area shrunk", areas),
    Operator("area overlapping", matches(rf"(?<= \+ )((?:Shape|Fa1)::{AREAS})\b(?! \*)", r"\1 - 256")),
    Operator("check dropped", matches(r"(?<=[a-z])<(?:true|kEdge)>(?=\()", "<false>")),
    Operator("offset dropped", matches(rf" [+-] {BEGINNINGS}\b(?!\.)", "")),
    Operator("shuffle dropped", shuffles),
    Operator("mbarrier or turn dropped", calls(MEETINGS)),
    Operator("release dropped", calls("release|release_keys|release_values")),
    Operator("fence dropped", matches(r"\b(?:fence_async_proxy|wgmma_fence)\(\)", "")),
    Operator("product's wait dropped", matches(r"\bwgmma_wait<\d>\(\)", "")),
    Operator("product's wait loosened", matches(r"(?<=\bwgmma_wait)<(\d)>", lambda m: f"<{int(m[1]) + 1}>")),
    Operator("product's commit dropped", matches(r"\bwgmma_commit\(\)", "")),
    Operator("hold dropped", calls("hold")),
    Operator("registers not moved", matches(r"\bregisters_(?:down|up)<[\w:]+>\(\)", "")),
    Operator("arrivals altered", swaps(*COUNTED)),
    Operator("phase altered", swaps(*PHASES)),
    Operator("ring mistaken", swaps(*USED)),
    Operator("box mistaken", swaps(*BOXES)),
)  # fmt: skip
