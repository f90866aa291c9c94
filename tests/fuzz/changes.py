"""Changes of one part of what JSON can hold, as the bytes of a fuzzer's input choose."""

import copy

__all__ = ["change"]

NUMBERS = [
    0, 1, -1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 1000, 2**20, 2**31 - 1, 2**31,
    2**40, 2**48, 2**63 - 1, 2**63, -(2**63), 2**64, -0.0, 0.5, 1.0, 1e-5, 1e-320, 1e38, 1e39,
    1e308, -1e308,
]  # fmt: skip
OTHERS = [None, True, False, "", "\0", "tokens", "slots", "select", "sample", [], {}, [1], [[]]]


def change(value, choices, words=()):
    """Change one part of a value, often to what another place has.

    `words` are keys that objects may get, and texts that may be anywhere.
    """
    parts = _parts(value)
    if not parts:
        return
    holder, key = choices.pick(parts)
    way = choices.below(9 if words else 8)
    if way == 0:
        del holder[key]
    elif way == 1:
        holder[key] = _of_another_place(parts, choices)
    elif way == 2 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif way == 3:
        holder[key] = choices.pick([*OTHERS, *words])
    elif way == 8 and isinstance(holder, dict):
        holder[choices.pick(words)] = _of_another_place(parts, choices)
    elif type(holder[key]) in (int, float) or way == 4:
        holder[key] = choices.pick(NUMBERS)
    else:
        alike = [(h, k) for h, k in parts if type(h[k]) is type(holder[key])]
        holder[key] = _of_another_place(alike, choices)


def _of_another_place(parts, choices):
    holder, key = choices.pick(parts)
    return copy.deepcopy(holder[key])


def _parts(value):
    """Return where every part of a value is: what holds it, and its key."""
    found = []
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            found += _parts(value[key])
    return found
