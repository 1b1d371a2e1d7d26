"""Mistakes by name, written once for the host, for a device and for functions of any structure."""

from loop.mistakes import cheats, values
from loop.mistakes.arrays import ErringCall, Maker, maker

SPOILING = (
    *(values.zeros, values.mean, values.transpose, values.one_off, values.one_nan, values.growing),
    *(values.zero_tail, values.neighbour, values.roll),
)
ON_VALUES = (
    *(values.ignore, values.swap, values.read_for, values.cut, values.set_attribute, values.wrong_number),
    *(values.round_inputs, values.leave_tail, values.use_input, values.answer_in_input, values.vary),
)
ON_TENSORS = (
    *(cheats.nothing, cheats.beyond, cheats.before),
    *(cheats.stale, cheats.skip_every_other, cheats.keeps_inputs),
    cheats.by_address,
    cheats.write_input,
)
MAKERS: dict[str, Maker] = {
    "none": maker(ErringCall.compute),
    **{spoil.__name__: maker(values.spoiling(spoil)) for spoil in SPOILING},
    **{err.__name__: maker(err) for err in (*ON_VALUES, *ON_TENSORS)},
}
"""Mistakes that see arrays, by name."""
