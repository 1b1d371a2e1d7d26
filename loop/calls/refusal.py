"""How a child says no."""


class Refused(Exception):
    """The variant cannot do this call, or did not do it as it must: a finding, not a bug of loop."""


class Declined(Refused):
    """The variant itself said no, in so many words: a compiled one by its error number."""


DECLINED = (Declined, NotImplementedError)
"""How a variant says that it does not support a call: an error number, or `raise NotImplementedError`."""
