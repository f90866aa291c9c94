"""Hypothesis over shapes, strides, choices and special values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calls import HALVES, LAYOUTS, check, choices, draw_arguments, sprinkle

pytestmark = pytest.mark.usefixtures("supported")

leading = st.lists(st.integers(0, 5), max_size=3).map(tuple)
length = st.one_of(st.integers(0, 70), st.sampled_from([126, 128, 130, 510, 1024, 2050]))


@given(data=st.data())
def test_any_call(op, backend, data):
    dtype = data.draw(st.sampled_from(["float32", "float16", "bfloat16", "float64"]), "dtype")
    n = data.draw(length, "n")
    halves = any(kind.role == "half_rows" for kind in op.kinds.values())
    shape = (*data.draw(leading, "leading"), n + n % 2 if halves else n)
    case = f"any/{data.draw(st.integers(0, 2**16), 'seed')}"
    mixtures = [(), *op.mixtures] if dtype in HALVES else [()]
    wide = data.draw(st.sampled_from(mixtures), "float32 arguments")
    values = draw_arguments(op, shape, dtype, case, wide)
    share = data.draw(st.sampled_from([0.0, 0.0, 0.02, 0.5]), "share of special values")
    sprinkle(op, values, case, share)
    layouts = st.sampled_from(list(LAYOUTS))
    values = {name: LAYOUTS[data.draw(layouts, name)](value) for name, value in values.items()}
    values |= data.draw(st.sampled_from(choices(op)), "choices")
    for name, kind in op.kinds.items():
        if kind.role == "real" and data.draw(st.booleans(), f"give {name}"):
            low = max(kind.minimum, -4.0)
            values[name] = data.draw(st.floats(low, 4.0, allow_subnormal=False), name)
    if data.draw(st.booleans(), "in place") and op.outputs == 1:
        before = {
            name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in values.items()
        }
        x = np.copy(values[op.first])
        result = op.public(**values | {op.first: x}, out=x, backend=backend)
        assert result is x
        check(op, backend, before, result)
    else:
        check(op, backend, values, op.public(**values, backend=backend))
