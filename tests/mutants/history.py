"""The recorded history's own mistakes, and their near relations, written by hand: a file and what is put where."""

Change = tuple[str, str]

WORKSPACE = """  const Workspace workspace(rows * (problem.depth + kPartialExtra) * sizeof(float), stream);
  if (!workspace.data()) return kOutOfMemory;
"""
KEPT = """  static float kept[1 << 22];
  static size_t kept_rows = 0;
  const bool again = kept_rows == rows;
  kept_rows = rows;
  expose(kept, sizeof kept, "the workspace", true);
"""

INVERSE = "    const float inverse = total == 0.0f ? 0.0f : reciprocal_approx(total);\n    const Matrix<T> output"
"""Where the reduction of split_k has its row sum."""
HISTORY: dict[str, tuple[str, list[Change]]] = {
    "row sum counted by every lane again in the reduction": (
        "split_k.cuh",
        [
            (
                INVERSE,
                f"    for (int mask = 16; mask > 0; mask /= 2) total += shuffle_xor(total, mask);\n{INVERSE}",
            )
        ],
    ),
    "row sum counted by two neighbouring lanes again": (
        "split_k.cuh",
        [
            (
                INVERSE,
                f"    total += shuffle_xor(total, 1);\n{INVERSE}",
            )
        ],
    ),
    "row sum of a partial is one lane's": (
        "split_k.cuh",
        [("  state.finish_sums();\n  put_partial", "  put_partial")],
    ),
    "ranges added up without bringing them to one maximum": (
        "split_k.cuh",
        [
            ("const float weight = exp2_approx(tops[i] - subtracted);", "const float weight = 1.0f;"),
            ("exp2_approx(shared_load<float>(groups.top(one)) - subtracted);", "1.0f;"),
        ],
    ),
    "fully masked range not guarded: 2^(-inf + inf)": (
        "split_k.cuh",
        [
            (
                "const float subtracted = highest == kMasked ? 0.0f : highest;\n#pragma unroll",
                "const float subtracted = highest;\n#pragma unroll",
            ),
        ],
    ),
    "row that sees no key divided by its sum": (
        "split_k.cuh",
        [("total == 0.0f ? 0.0f : reciprocal_approx(total)", "reciprocal_approx(total)")],
    ),
    "the reduction reads the first range for every range": (
        "split_k.cuh",
        [
            ("row(problem, range, query);\n      tops", "row(problem, 0, query);\n      tops"),
        ],
    ),
    "values of the first range for every range": (
        "split_k.cuh",
        [
            ("load_piece(row, piece", "load_piece(partials.row(problem, 0, query), piece"),
        ],
    ),
    "the last range is never reduced": (
        "split_k.cuh",
        [
            ("if (range < partials.ranges) {", "if (range < partials.ranges - 1) {"),
        ],
    ),
    "the last way of a row is never reduced": (
        "split_k.cuh",
        [("end = begin + ways;", "end = begin + (ways > 1 ? ways - 1 : 1);")],
    ),
    "partials of an earlier call": (
        "split_k.cuh",
        [
            (WORKSPACE, KEPT),
            ("static_cast<float *>(workspace.data())", "kept"),
            ("error = split_partial<T, kDepth>", "error = again ? kSuccess : split_partial<T, kDepth>"),
        ],
    ),
    "partials of ranges that see no key never written": (
        "split_k.cuh",
        [("  state.begin();\n", "  if (range.begin >= seen) return;\n  state.begin();\n")],
    ),
    "ranges cut without the last, shorter one": (
        "split_k.cuh",
        [("const int each = (tiles + ranges - 1) / ranges;", "const int each = tiles / ranges;")],
    ),
    "maximum of each warp kept by its first lane only": (
        "fa1.cuh",
        [("mask > 0; mask /= 2) value = fmaxf", "mask > 16; mask /= 2) value = fmaxf")],
    ),
    "row sum of the last tile instead of all": (
        "fa1.cuh",
        [("sum[r] = sum[r] * shrink[r] + warp_sum(weight);", "sum[r] = warp_sum(weight);")],
    ),
    "weights rescaled by the inverse": (
        "fa1.cuh",
        [("shrink[r] = exp2_approx(top[r] - subtracted);", "shrink[r] = exp2_approx(subtracted - top[r]);")],
    ),
    "row sums of the warps merged without their maxima": (
        "small.cuh",
        [("total += factor * shared_load<float>(sum", "total += shared_load<float>(sum")],
    ),
    "each warp's sum is one lane's": (
        "small.cuh",
        [("  state.finish_sums();\n", "")],
    ),
    "decode does not wait for the kernel before it": (
        "decode.cuh",
        [("  wait_for_previous();\n  loader", "  loader")],
    ),
    "the reduction of decode does not wait for its first pass": (
        "decode.cuh",
        [("  wait_for_previous();\n  if", "  if")],
    ),
    "small does not wait for the kernel before it": (
        "small.cuh",
        [("  wait_for_previous();\n", "")],
    ),
    "warp_specialized does not wait for the kernel before it": (
        "warp_specialized.cuh",
        [("  wait_for_previous();\n\n", "\n")],
    ),
    "parts are put together before they are there": (
        "warp_specialized.cuh",
        [("  wait_for_previous();\n  // A tile", "  // A tile")],
    ),
    "the blocks behind the first of a section are not where the last round ended": (
        "groups.cuh",
        [("      begin_ += count, round_ = 0;", "      begin_ += count;")],
    ),
    "a section's last round leaves its last piece": (
        "groups.cuh",
        [("if (within_ < count) return;", "if (within_ < count - 1) return;")],
    ),
    "a piece that sees no key turns the parity of the queries": (
        "warp_specialized.cuh",
        [("    start();\n", "    start();\n    if (work.end == begin) queries_parity ^= 1;\n")],
    ),
    "queries are given back with the first tile of keys": (
        "warp_specialized.cuh",
        [("    if (last) release(", "    if (!last) release(")],
    ),
    "a part of the keys is stored as if it were all": (
        "warp_specialized.cuh",
        [("const bool part = kShares && work.slot >= 0;", "const bool part = false;")],
    ),
    "the last piece of a share lies where the first does": (
        "groups.cuh",
        [(" + (tile_ != start().tile);", ";")],
    ),
    "a share ends with all keys of its last tile": (
        "groups.cuh",
        [("    if (tile_ == stop().tile) work.begin = seen - stop().step;\n", "")],
    ),
    "rows are put together without their last part": (
        "warp_specialized.cuh",
        [("  int parts = 2;\n", "  int parts = 1;\n")],
    ),
    "parts are not weighed by the reference that they share": (
        "warp_specialized.cuh",
        [("= exp2_approx(weights[i] - subtracted);", "= exp2_approx(weights[i]);")],
    ),
    "fully masked tile not guarded": (
        "warp.cuh",
        [("return top == kMasked ? 0.0f : top * scale_log2;", "return top * scale_log2;")],
    ),
}  # fmt: skip
