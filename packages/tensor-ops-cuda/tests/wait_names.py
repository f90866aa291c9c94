"""The names of the waits of the kernel of decode steps, as its headers have them."""

import re
from pathlib import Path

KERNELS = Path(__file__).parents[1] / "native"


def names_of(path, first):
    """Return the names of an enumeration that follow one of them, this included."""
    text = (KERNELS / path).read_text(encoding="utf-8")
    names = re.findall(r"^  (k\w+)(?: = \w+)?,", text[text.index(f"  {first}") :], re.MULTILINE)
    return names[
        : next(i for i, name in enumerate(names) if name.startswith(("kGridWaits", "kPhase")))
    ]


# In the order of their numbers, which begin at 1.
WAITS = [
    *names_of("decode/kernels/waits.h", "kStepBegins"),
    *names_of("kernels/grid.cuh", "kBlockHasWritten"),
]
