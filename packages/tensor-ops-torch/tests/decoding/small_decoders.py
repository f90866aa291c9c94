"""A small model of transformers, its tokenizer, and decoders of it that note their requests."""

import contextlib
import os

import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import tensor_ops_torch

# The bytes, then the special tokens.
PAD, BEGIN, END = 256, 257, 258
VOCABULARY = 259
PROMPTS = [[104, 101, 108, 108, 111], [97, 98], [257, 119, 111, 114, 108, 100, 33, 33, 10]]

NEW = 8  # tokens of an answer


def small_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


def tokenizer():
    """Return a tokenizer whose tokens are bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(
        models.BPE(vocab={each: i for i, each in enumerate(alphabet)}, merges=[])
    )
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    names = {"pad_token": "<pad>", "bos_token": "<begin>", "eos_token": "<end>"}
    return PreTrainedTokenizerFast(tokenizer_object=bytes_only, padding_side="left", **names)


def padded(prompts=PROMPTS):
    """Return prompts as a tensor with padding at the left, and its mask."""
    longest = max(map(len, prompts))
    rows = [[PAD] * (longest - len(row)) + row for row in prompts]
    masks = [[0] * (longest - len(row)) + [1] * len(row) for row in prompts]
    return {"inputs": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def free_tokens(model):
    """Return what the model writes after each prompt, as if it had no end token."""
    return model.generate(**padded(), max_new_tokens=NEW, eos_token_id=None)[:, -NEW:].tolist()


class NotingKernel:
    """A kernel that notes what its requests were added with, and what they shared."""

    def __init__(self, kernel):
        self.kernel, self.added, self.shared = kernel, [], []

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def __call__(self):
        return self.kernel()

    def add_request(self, tokens, **how):
        self.added.append(how)
        return self.kernel.add_request(tokens, **how)

    def chose_in_python(self):
        """Return whether Python has chosen the tokens of the requests since the last call."""
        added, self.added = self.added, []
        (found,) = {how.get("choose", True) for how in added}
        return not found

    def remove(self, request, **how):
        with contextlib.suppress(ValueError):  # Ctrl-C may have come before it was added
            self.shared.append(self.kernel.num_shared(request))
        self.kernel.remove(request, **how)


def noting_decoder(model, **options):
    """Return a decoder whose kernel notes its requests."""
    made = tensor_ops_torch.decoder(model, max_seq_length=128, **options)
    made.kernel = NotingKernel(made.kernel)
    return made


class Stream:
    """A streamer that keeps what it gets."""

    def __init__(self):
        self.values, self.num_ends = [], 0

    def put(self, value):
        assert self.num_ends == 0
        self.values.append(value.tolist())

    def end(self):
        self.num_ends += 1
