"""Names of kernels as people read them, and what a manifest may promise."""

from typing import Any

import pytest

from loop.model.resources import short_name
from loop.model.target import Instances

SPLIT: dict[str, Any] = {
    "symbol": "scale::rows<{T}, {N}>",
    "over": {"T": ["float", "__half"], "N": [16, 32]},
    "file": "rows.cu",
    "line": "template void scale::rows<{T}, {N}>({T} *);",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void rows<__half, 128, (ns::E)1, false>(Params)", "rows<__half, 128, (ns::E)1, false>"),
        ("(anonymous namespace)::hidden(float*)", "hidden"),
        ("plain_name", "plain_name"),
        ("_Z4rowsPf", "_Z4rowsPf"),
        ("void a::b<void (*)(int), 3>(float*) [clone .cold]", "a::b<void (*)(int), 3>"),
        ("std::vector<int, A<int> > ns::f<float>(int)", "ns::f<float>"),
    ],
)
def test_a_short_name_has_no_return_type_and_no_parameters(name: str, expected: str) -> None:
    """Whatever parentheses its template arguments hold."""
    assert expected == short_name(name)


def test_all_combinations_of_instances_are_promised() -> None:
    """Each with the line that makes it."""
    promised = Instances.model_validate(SPLIT).promised()
    assert 4 == len(promised)
    assert ("scale::rows<float, 16>", "template void scale::rows<float, 16>(float *);") == promised[0]
    assert ("scale::rows<__half, 32>", "template void scale::rows<__half, 32>(__half *);") == promised[-1]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"symbol": "rows<{T}>"}, r"symbol: \{N\}, which `over` has, is not in it"),
        ({"line": "template void rows<{T}, {N}, {M}>();"}, r"line: \{M\}, which `over` does not have"),
    ],
)
def test_placeholders_have_to_agree(fields: dict[str, Any], said: str) -> None:
    """A misspelt one would promise what nobody means."""
    with pytest.raises(ValueError, match=said):
        Instances.model_validate({**SPLIT, **fields})
