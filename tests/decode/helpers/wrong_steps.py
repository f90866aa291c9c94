"""Steps that every executor must refuse before it writes anything, and steps that are allowed.

They are changes of `fill`, a step of three requests, or of `fill_row`, the first of five steps in a
row, in the arrays of `whole_programs.base_program`: an array, a place in it, the value, and the
words that the message must have.
"""

import numpy as np

INT32 = 2**31
NAN, INF = float("nan"), float("inf")
SMALLEST = 2.0**-149  # of float32
RUN = (6, 3)
# The tokens of each slot: its number, the first position, how many.
REQUESTS = ((2, 6, 3), (0, 0, 1), (1, 13, 2))


def fill(arrays):
    """Write the step of `RUN`."""
    _fill_slots(arrays)
    first = 0
    for slot, position, count in REQUESTS:
        rows = slice(first, first + count)
        arrays["tokens"][rows] = np.arange(count) + 1
        arrays["positions"][rows] = np.arange(count) + position
        arrays["slots"][rows] = slot
        first += count
    arrays["selected"][:3] = [0, 2, 5]


def fill_row(arrays):
    """Write the first step of `run_steps`, a token of each slot."""
    _fill_slots(arrays)
    for row, (slot, position, _) in enumerate(REQUESTS):
        arrays["tokens"][row], arrays["slots"][row] = row + 1, slot
        arrays["positions"][row], arrays["selected"][row] = position, row


def run_row(executable, **given):
    """Run five steps in a row of what `fill_row` has written."""
    settings = {"num_tokens": 3, "num_steps": 5, "output": "next", "end_tokens": [[], [], []]}
    return executable.run_steps(**settings | given)


def _fill_slots(arrays):
    for each in arrays.values():
        each[...] = 0
    pages = arrays["page_table"]
    pages[...] = np.arange(pages.size).reshape(pages.shape) % 12
    arrays["temperature"][:], arrays["top_p"][:] = 0.7, 0.9
    arrays["num_edits"][:], arrays["edit_penalties"][:] = 2, 1.1
    arrays["edited_tokens"][:, 1] = 3


def _each(name, places, values, expected):
    """Yield an entry for each value at each place; the message names array, value and range."""
    for place in places:
        for value in values:
            shown = f"{np.float32(value):g}" if isinstance(value, float) else str(value)
            if isinstance(value, float) and abs(value) < 1e-30:
                shown = ""  # which digits there are is not the same everywhere
            yield name, place, value, [*expected, *place_of(name, place), shown]


def place_of(name, place):
    """Return how messages name an element of what belongs to a slot."""
    if name in ("tokens", "positions", "slots", "selected"):
        return []
    return [f"{name}[{', '.join(map(str, place))}]"]


_NO_PARTS = [NAN, INF, -INF, -1.0, -SMALLEST, -1e-40, 1.5, 7.0, 1.0 + 2.0**-23]
_TOO_LARGE = [1056 + 1, INT32 - 1, -1, -INT32]
# A window of 5 of slot 1 at position 14 reads from position 10 on, in the third of its pages.
_BEFORE_WINDOWS, _IN_WINDOWS = [(1, 0), (1, 1)], [(1, 2), (1, 3), (2, 0), (2, 2), (0, 0)]
_NO_PAGES = [-1, 12, INT32 - 1, -INT32]

# An array, the place, the value, words of the message.
WRONG_STEPS = [
    *_each("tokens", [(0,), (5,)], [-1, 10, INT32 - 1, -INT32], ["token", "0 to 9"]),
    *_each("positions", [(3,), (0,)], [-1, 32, INT32 - 1, -INT32], ["position", "0 to 31"]),
    *_each("slots", [(3,), (5,)], [-1, 3, INT32 - 1, -INT32], ["slot", "0 to 2"]),
    *_each("selected", [(0,), (2,)], [-1, 6, INT32 - 1, -INT32], ["selected", "0 to 5"]),
    ("positions", (1,), 6, ["slot 2", "ascend one by one", "got 6 after 6"]),
    ("positions", (1,), 8, ["slot 2", "ascend one by one", "got 8 after 6"]),
    ("slots", (5,), 2, ["slot 2", "ascend one by one", "got 14 after 8"]),
    ("selected", (1,), 0, ["selected must ascend", "got 0 after 0"]),
    ("selected", (2,), 1, ["selected must ascend", "got 1 after 2"]),
    *_each("page_table", _IN_WINDOWS, _NO_PAGES, ["from 0 to 11"]),
    *_each(
        "temperature",
        [(0,), (1,), (2,)],
        [NAN, INF, -INF, -1.0, -SMALLEST],
        ["finite and at least 0"],
    ),
    *_each("top_p", [(0,), (1,), (2,)], _NO_PARTS, ["from 0 to 1"]),
    *_each("min_p", [(0,), (1,), (2,)], _NO_PARTS, ["from 0 to 1"]),
    *_each("top_k", [(0,), (1,), (2,)], [-1, -INT32], ["at least 0"]),
    *_each("num_edits", [(0,), (2,)], _TOO_LARGE, ["from 0 to 1056"]),
    *_each("edited_tokens", [(0, 0), (2, 1)], [-1, 10, INT32 - 1], ["from 0 to 9"]),
    *_each("edit_biases", [(0, 0), (2, 1)], [NAN, INF], ["a number or minus infinity"]),
    *_each(
        "edit_penalties",
        [(0, 0), (2, 1)],
        [NAN, INF, -INF, 0.0, -1.0, -SMALLEST],
        ["finite and above 0"],
    ),
]

# A row of steps is refused for what a single step is refused for. It has one token of each slot,
# and its later steps read pages that the first one does not.
WRONG_ROWS = [
    entry
    for entry in WRONG_STEPS
    if entry[0] not in ("slots", "positions", "selected")
    if entry[0] != "tokens" or entry[1] == (0,)
] + [
    *_each("positions", [(1,)], [-1, 32, INT32 - 1, -INT32], ["position", "0 to 31"]),
    *_each("slots", [(1,)], [-1, 3, INT32 - 1, -INT32], ["slot", "0 to 2"]),
    *_each("selected", [(1,)], [-1, 3, INT32 - 1], ["selected", "0 to 2"]),
    ("positions", (0,), 28, ["positions", "below 32", "slot 2 comes to 32"]),
    ("selected", (2,), 0, ["selected must ascend", "got 0 after 1"]),
    *_each("page_table", [(0, 1), (1, 4)], _NO_PAGES, ["from 0 to 11"]),
]

# Arguments of run(), and the words of the message.
WRONG_NUMBERS = [
    *(((tokens, 3), ["num_tokens", "from 1 to 8", str(tokens)]) for tokens in (0, -1, 9, INT32)),
    *(((6, selected), ["num_selected", "from 0 to 4", str(selected)]) for selected in (-1, 5)),
    ((2, 3), ["num_selected", "from 0 to 2", "3"]),
    *(((number, 3), []) for number in (1.0, 6.0, "6", None)),
    *(((6, number), []) for number in (1.0, 3.0, "3", None)),
]

# Arguments of run_steps(), and the words of the message.
WRONG_ARGUMENTS = [
    *(({"num_steps": each}, ["num_steps", "from 1 to 32", str(each)]) for each in (0, -1, 33)),
    ({"num_steps": 20}, ["positions", "below 32", "slot 1 comes to 32"]),
    *(({"num_steps": each}, []) for each in (1.0, "3", None)),
    *(({"num_tokens": each, "end_tokens": [[]] * each}, ["num_tokens"]) for each in (0, 9)),
    ({"num_tokens": -1}, ["num_tokens must be from 1 to 8, got -1"]),
    *(({"num_tokens": each}, []) for each in (1.0, "3", None)),
    *(
        ({"output": each}, [f"'{each}'", "no output", "int32"])
        for each in ("logits", "tokens", "positions", "wide", "absent", "")
    ),
    *(({"output": each}, []) for each in (None, 3)),
    *(
        ({"end_tokens": each}, ["end_tokens", "each of 3 tokens", str(len(each))])
        for each in ([], [[]], [[]] * 4)
    ),
    *(
        ({"end_tokens": each}, [])
        for each in (None, 3, [1, 2, 3], [None, [], []], [[1.5], [], []], [["x"], [], []])
    ),
    ({"end_tokens": [[INT32], [], []]}, []),
]

# Allowed values at the edges of a step.
ALLOWED_STEPS = [
    *(("page_table", place, value) for place in _BEFORE_WINDOWS for value in _NO_PAGES),
    # Entries of slots and pages that no token has.
    *(("page_table", (0, 7), value) for value in _NO_PAGES),
    ("tokens", (7,), -1),
    ("slots", (7,), -1),
    ("selected", (3,), -1),
    *(("tokens", (0,), value) for value in (0, 9)),
    *(("positions", (3,), value) for value in (0, 31)),
    *(("temperature", (0,), value) for value in (0.0, -0.0, SMALLEST, 1e-40, 3.4028234e38)),
    *(("top_p", (0,), value) for value in (0.0, -0.0, SMALLEST, 1.0)),
    *(("min_p", (0,), value) for value in (0.0, -0.0, SMALLEST, 1.0)),
    *(("top_k", (0,), value) for value in (0, 1, INT32 - 1)),
    *(("seed", (0,), value) for value in (0, 2**64 - 1)),
    ("num_edits", (0,), 0),
    ("edited_tokens", (0, 2), -1),  # is not one of the edits
    ("edit_penalties", (0, 2), NAN),
    *(("edit_biases", (0, 0), value) for value in (-INF, 3.4028234e38, -3.4028234e38)),
    *(("edit_penalties", (0, 0), value) for value in (SMALLEST, 3.4028234e38)),
]

# Settings by which neither a request nor a sequence of a program in C++ may be sampled.
WRONG_SAMPLINGS = [
    *(("temperature", value) for value in (NAN, INF, -INF, -1.0, -5e-324, 1000001.0)),
    *(("top_p", value) for value in (NAN, INF, -INF, -1.0, -5e-324, 0.0, 1.0 + 2.0**-52, 7.0)),
    *(("min_p", value) for value in (NAN, INF, -INF, -1.0, -5e-324, 1.0 + 2.0**-52, 7.0)),
    *(("top_k", value) for value in (-1, -INT32)),
]
ALLOWED_SAMPLINGS = [
    *(("temperature", value) for value in (0.0, -0.0, 5e-324, 0.7, 1e6)),
    *(("top_p", value) for value in (5e-324, 0.5, 1.0)),
    *(("min_p", value) for value in (0.0, -0.0, 5e-324, 1.0)),
    *(("top_k", value) for value in (0, 1, INT32 - 1)),
    *(("seed", value) for value in (0, 2**64 - 1)),
]
