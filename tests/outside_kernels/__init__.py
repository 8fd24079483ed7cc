"""Kernels that are wrong in the way that public trackers tell of, in eighteen sets, each by one who
had not read what is checked: what verification sees of them is a figure that no row was made for.

Each is right but for what its name says. `like` is the public thread that the way of being wrong is
known from; where it is empty, it is common knowledge. No code is from there. Plain, option and rare
tell how far from the common call it lies: wrong for common arguments, for a common option, stride,
type or length, or for rare ones.
"""

from __future__ import annotations

from outside_kernels import (
    eighteenth_kernels,
    eighth_kernels,
    eleventh_kernels,
    fifteenth_kernels,
    fifth_kernels,
    first_kernels,
    fourteenth_kernels,
    fourth_kernels,
    ninth_kernels,
    second_kernels,
    seventeenth_kernels,
    seventh_kernels,
    sixteenth_kernels,
    sixth_kernels,
    tenth_kernels,
    third_kernels,
    thirteenth_kernels,
    twelfth_kernels,
)

SETS = tuple(
    one.KEPT
    for one in (
        first_kernels,
        second_kernels,
        third_kernels,
        fourth_kernels,
        fifth_kernels,
        sixth_kernels,
        seventh_kernels,
        eighth_kernels,
        ninth_kernels,
        tenth_kernels,
        eleventh_kernels,
        twelfth_kernels,
        thirteenth_kernels,
        fourteenth_kernels,
        fifteenth_kernels,
        sixteenth_kernels,
        seventeenth_kernels,
        eighteenth_kernels,
    )
)
KERNELS = {name: kernel for kept in SETS for name, kernel in kept.items()}
SHOWN = {name: shown for kept in SETS for name, shown in kept.shown.items()}
HALF = {
    **first_kernels.HALF,
    **dict.fromkeys(second_kernels.KEPT, "thirty"),
    **dict.fromkeys(third_kernels.KEPT, "thirty more"),
    **dict.fromkeys(fourth_kernels.KEPT, "the last thirty"),
    **dict.fromkeys(fifth_kernels.KEPT, "thirty after them"),
    **dict.fromkeys(sixth_kernels.KEPT, "the sixth thirty"),
    **dict.fromkeys(seventh_kernels.KEPT, "the seventh thirty"),
    **dict.fromkeys(eighth_kernels.KEPT, "the eighth thirty"),
    **dict.fromkeys(ninth_kernels.KEPT, "the ninth thirty"),
    **dict.fromkeys(tenth_kernels.KEPT, "the tenth thirty"),
    **dict.fromkeys(eleventh_kernels.KEPT, "the eleventh thirty"),
    **dict.fromkeys(twelfth_kernels.KEPT, "the twelfth thirty"),
    **dict.fromkeys(thirteenth_kernels.KEPT, "the thirteenth thirty"),
    **dict.fromkeys(fourteenth_kernels.KEPT, "the fourteenth thirty"),
    **dict.fromkeys(fifteenth_kernels.KEPT, "the fifteenth thirty"),
    **dict.fromkeys(sixteenth_kernels.KEPT, "the sixteenth thirty"),
    **dict.fromkeys(seventeenth_kernels.KEPT, "the seventeenth thirty"),
    **dict.fromkeys(eighteenth_kernels.KEPT, "the eighteenth thirty"),
}
