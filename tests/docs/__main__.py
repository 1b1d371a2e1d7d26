"""`python -m tests.docs reference`: generate the reference from the program."""

from tests.docs import reference

print("\n".join(reference.write()))
