"""Files of a model with settings, and with tensors that are nearly nothing."""

from types import SimpleNamespace

import numpy as np

SIZES = {
    "vocab_size": 331,
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


class Files:
    """Files whose tensors have a shape and factors, and nothing else."""

    path, config = "model", "model/config.json"

    def __init__(self, metadata, further=()):
        names = ("model.embed_tokens.weight", "token_embd.weight", *further)
        self.metadata, self.names = metadata, (*names, *map(str, range(100)))

    def tensor(self, name):
        factors = np.array([2.0, 3.0, 4.0])
        shape = (331, 48) if "embd" in name or "embed" in name else (3,)
        return SimpleNamespace(file=self.path, shape=shape, values=factors.astype)

    header = tensor
