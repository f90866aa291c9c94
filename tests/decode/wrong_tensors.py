"""Tensors that every executor must refuse, and the forms in which it must take them.

They are changes of the tensors of `wrong_programs.base_program`: the tensor, what becomes of the
array, and the words that the message must have beside the tensor's name.
"""

import numpy as np

WRONG_TENSORS = {
    "a row less": ("table", lambda array: array[:-1].copy(), ["(9, 32)"]),
    "a row less in bytes": ("table", lambda array: array[:-1].copy().view(np.uint8), ["1280"]),
    "a row more": ("matrix", lambda array: np.concatenate([array, array[:1]]), ["544"]),
    "transposed": ("table", lambda array: array.T.copy(), ["(10, 32)", "(32, 10)"]),
    "other rows": ("table", lambda array: array.reshape(5, 64), ["(10, 32)", "(5, 64)"]),
    "a vector": ("table", lambda array: array.reshape(-1), ["(10, 32)", "(320,)"]),
    "a matrix": ("norm", lambda array: array.reshape(1, -1), ["(32,)", "(1, 32)"]),
    "no bytes": ("norm", lambda array: np.zeros(0, np.uint8), ["128"]),
    "Fortran order": ("table", np.asfortranarray, ["contiguous"]),
    "a view with gaps": ("norm", lambda array: np.repeat(array, 2)[::2], ["contiguous"]),
    "float64 of as many bytes": (
        "table",
        lambda array: array.reshape(-1, 16).astype(np.float64),
        ["f32", "float64"],
    ),
    "float16": ("table", lambda array: array.astype(np.float16), ["f32", "float16"]),
    "int32": ("table", lambda array: array.view(np.int32), ["f32", "int32"]),
    "int8": ("table", lambda array: array.view(np.int8), ["f32", "int8"]),
    "the other byte order": ("norm", lambda array: array.byteswap().view(">f4"), ["f32", ">f4"]),
    "numbers in place of blocks": (
        "matrix",
        lambda array: np.zeros((16, 32), np.float32),
        ["q8_0", "float32"],
    ),
    "text": ("table", lambda array: "table", ["array"]),
    "a list": ("norm", lambda array: array.tolist(), ["array"]),
    "None": ("norm", lambda array: None, ["array"]),
}

ALLOWED_TENSORS = {
    "bytes": ("table", lambda array: array.view(np.uint8)),
    "bytes of another shape": ("table", lambda array: array.view(np.uint8).reshape(-1)),
    "an array that cannot be written": (
        "table",
        lambda array: np.frombuffer(array.tobytes(), np.float32).reshape(array.shape),
    ),
    "a tensor that is not in the program": ("more", lambda array: "text"),
}
