"""`python -m tests.docs reference|pictures`: write documents anew from the program."""

import sys

from tests.docs import pictures, reference

MAKERS = {"reference": reference.write, "pictures": pictures.write}

for wanted in sys.argv[1:] or MAKERS:
    print("\n".join(MAKERS[wanted]()))
