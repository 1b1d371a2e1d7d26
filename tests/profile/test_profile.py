"""The compiler's listing: what it tells of vectors."""

from loop.profile.profile import vector_share

LISTING = """
\tvaddps\t(%rax), %zmm0, %zmm1
\tvfmadd231ps\t%zmm1, %zmm2, %zmm0
\tmulsd\t8(%rax), %xmm0
\tmovaps\t%xmm0, (%rax)
\tvaddss\t%xmm0, %xmm1, %xmm1
"""


def test_a_listing_tells_vectors_from_single_elements() -> None:
    """Two of four: moves are no arithmetic."""
    assert 0.5 == vector_share(LISTING)
    assert vector_share("\tmovl\t%eax, %ebx\n") is None
