"""Tensors that every executor must refuse, and the forms in which it must take them.

They are changes of the tensors of `whole_programs.program_for`: the tensor, what becomes of the
array, and the words that the message must have beside the tensor's name.
"""

import numpy as np

WRONG_TENSORS = {
    "a row less": ("cos", lambda array: array[:-1].copy(), ["(31, 2)"]),
    "a row less in bytes": ("cos", lambda array: array[:-1].copy().view(np.uint8), ["256"]),
    "a row more": ("matrix", lambda array: np.concatenate([array, array[:1]]), ["544"]),
    "transposed": ("cos", lambda array: array.T.copy(), ["(32, 2)", "(2, 32)"]),
    "other rows": ("cos", lambda array: array.reshape(16, 4), ["(32, 2)", "(16, 4)"]),
    "a vector": ("cos", lambda array: array.reshape(-1), ["(32, 2)", "(64,)"]),
    "a matrix": ("norm", lambda array: array.reshape(1, -1), ["(32,)", "(1, 32)"]),
    "no bytes": ("norm", lambda array: np.zeros(0, np.uint8), ["128"]),
    "Fortran order": ("cos", np.asfortranarray, ["contiguous"]),
    "a view with gaps": ("norm", lambda array: np.repeat(array, 2)[::2], ["contiguous"]),
    "float64 of as many bytes": (
        "cos",
        lambda array: array.reshape(-1, 1)[::2].astype(np.float64),
        ["f32", "float64"],
    ),
    "float16": ("cos", lambda array: array.astype(np.float16), ["f32", "float16"]),
    "int32": ("cos", lambda array: array.view(np.int32), ["f32", "int32"]),
    "int8": ("cos", lambda array: array.view(np.int8), ["f32", "int8"]),
    "the other byte order": ("norm", lambda array: array.byteswap().view(">f4"), ["f32", ">f4"]),
    "numbers in place of blocks": (
        "matrix",
        lambda array: np.zeros((16, 32), np.float32),
        ["q8_0", "float32"],
    ),
    "text": ("cos", lambda array: "cos", ["array"]),
    "a list": ("norm", lambda array: array.tolist(), ["array"]),
    "None": ("norm", lambda array: None, ["array"]),
}

ALLOWED_TENSORS = {
    "bytes": ("cos", lambda array: array.view(np.uint8)),
    "bytes of another shape": ("cos", lambda array: array.view(np.uint8).reshape(-1)),
    "an array that cannot be written": (
        "cos",
        lambda array: np.frombuffer(array.tobytes(), np.float32).reshape(array.shape),
    ),
    "a tensor that is not in the program": ("more", lambda array: "text"),
}
