"""A small language model with a tokenizer, as a folder of Hugging Face: one token for each byte."""

import json

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

END, SPARE = 256, 257  # special tokens, which the tokenizer calls <end> and <spare>
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save_model(
    folder,
    *,
    vocabulary=260,
    template=TEMPLATE,
    seed=0,
    tied=False,
    dtype="float32",
    positions=128,
):
    """Write a model of random weights that says all kinds of bytes."""
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=vocabulary,
        max_position_embeddings=positions,
        initializer_range=0.4,
        eos_token_id=END,
        bos_token_id=None,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    letters = byte_letters()
    vocabulary = {letter: byte for byte, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<spare>"])
    assert tokenizer.token_to_id("<end>") == END
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<end>", "tokenizer_class": "PreTrainedTokenizerFast"}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def byte_letters():
    """Return the character that byte-level tokenizers write for each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = np.zeros(256, dtype=int)
    letters[visible] = visible
    letters[letters == 0] = 256 + np.arange(256 - len(visible))
    return [chr(letter) for letter in letters]
