"""`python -m tests.docs reference`: write the reference anew from the program."""

from tests.docs import reference

print("\n".join(reference.write()))
