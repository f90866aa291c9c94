"""A backend that keeps the contract: two ops, two dtypes.

Results are computed in double precision, so that they are right and recognisable: each call adds
the op's name to `calls`.
"""

import numpy as np

API_VERSION = 1

DTYPES = ("float32", "float16")
OPS = ("rms_norm", "silu")

calls = []


def probe():
    return {"available": True, "reason": None, "devices": ["abacus"]}


def info():
    return {
        "name": "good",
        "display_name": "A good backend",
        "available": True,
        "version": "1.2.3",
        "device_name": "an abacus",
        "device_count": 1,
        "dtypes": list(DTYPES),
        "ops": list(OPS),
        "beads": 70,
    }


def supports(op, dtype, device):
    if op not in OPS:
        return f"no {op} on an abacus"
    if dtype not in DTYPES:
        return f"no {dtype} on an abacus"
    return None if device == "cpu" else f"an abacus is not {device}"


def silu(x, *, out=None):
    wide = x.astype(np.float64)
    return _give("silu", wide / (1 + np.exp(-wide)), x, out)


def rms_norm(x, weight, eps=1e-6, *, out=None):
    wide = x.astype(np.float64)
    mean = np.mean(wide * wide, axis=-1, keepdims=True)
    return _give("rms_norm", wide * weight / np.sqrt(mean + eps), x, out)


def _give(op, result, x, out):
    calls.append(op)
    out = np.empty_like(x) if out is None else out
    out[...] = result
    return out
