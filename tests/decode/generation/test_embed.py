"""Embeddings of texts beside transformers' states, pooled in float64."""

import contextlib
import json
import math
import threading
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

import tensor_ops_decode
from byte_models import END, save_model
from draft_models import model_with_draft
from gguf_models import write_gguf
from greedy_models import BOUND, SMALL, open_kernel
from pooled_folders import write_settings
from small_families import model_of
from tensor_ops_decode import FileFormatError, LogitsError
from tensor_ops_decode.models.embedding_settings import embedding_settings, says_how_to_pool
from tensor_ops_decode.reference import ReferenceExecutable
from tensor_ops_decode.scheduling.pooling import POOLINGS, Pool
from tensor_ops_decode.weights import open_weights

# The bound of states is that of logits, which are sums of them.
# Of one token, of as many as a step has, and of so many that others wait for a slot.
TEXTS = [[7], [3, 200, 17, 5, 230, 64, 128, 1], [*range(40, 61)], [9, 9], [250, 3]]
FAMILIES = ("own head", "Qwen 3", "Gemma 2", "Gemma 4", "Qwen 3.5")


@torch.no_grad()
def states_of(model, tokens):
    """Return transformers' states of the last norm in float64, a row for each token."""
    core, ids = model.model, torch.tensor([tokens])
    if "linear_attention" not in (getattr(model.config, "layer_types", None) or ()):
        return core(ids).last_hidden_state[0].double().numpy()
    rows, cache = [], None  # pieces of a text are computed by another formula
    for position in range(len(tokens)):
        given = core(ids[:, position : position + 1], cache=cache, use_cache=True)
        rows.append(given.last_hidden_state[0])
        cache = given.past_key_values
    return torch.cat(rows).double().numpy()


def pooled(states, pooling):
    weights = np.arange(1, len(states) + 1)
    return {
        "last": states[-1],
        "cls": states[0],
        "mean": states.mean(axis=0),
        "weightedmean": weights @ states / weights.sum(),
    }[pooling]


@pytest.fixture
def text_folder(tmp_path):
    """A folder with a model whose tokens are bytes, and with the settings of its embeddings."""
    save_model(tmp_path)
    write_settings(tmp_path)
    return tmp_path


@pytest.fixture
def model(text_folder, backend):
    with tensor_ops_decode.load(text_folder, backend, **SMALL) as model:
        yield model


@pytest.mark.sampled(2, "family", "form", "backend")
@pytest.mark.parametrize("form", ["folder", "file"])
@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_are_pooled_states_of_transformers(family, form, backend, tmp_path):
    model, path = model_of(family), tmp_path
    if form == "folder":
        model.save_pretrained(path)
    else:
        path = tmp_path / "model.gguf"
        write_gguf(model, path)
    right = [states_of(model, tokens) for tokens in TEXTS]
    with open_kernel(path, backend=backend, embeddings=True) as kernel:
        kernel.compile()
        for pooling in POOLINGS:
            groups = list(kernel.embeddings(TEXTS, pooling=pooling))
            assert [len(group) for group in groups] == [3, 2]
            found = np.stack([row for group in groups for row in group])
            expected = np.stack([pooled(states, pooling) for states in right])
            assert found.dtype == np.float32
            assert np.abs(found - expected).max() < BOUND


def test_steps_select_no_token_so_that_no_logits_are_computed(text_folder, monkeypatch):
    steps, run = [], ReferenceExecutable.run

    def note(executable, num_tokens, num_selected):
        steps.append((num_tokens, num_selected))
        run(executable, num_tokens, num_selected)

    monkeypatch.setattr(ReferenceExecutable, "run", note)
    with tensor_ops_decode.load(text_folder, "python", **SMALL) as model:
        model.embed(TEXTS)
    assert [selected for _, selected in steps] == [0] * len(steps)
    # Three texts of 1, 8 and 21 tokens in steps of 8, then the others together.
    assert [tokens for tokens, _ in steps] == [8, 8, 8, 6, 4]


def test_bits_do_not_depend_on_other_texts_nor_on_steps(text_folder, cpp):
    found = []
    for tokens, requests, workers in ((8, 3, 1), (5, 1, 2), (64, 5, 2)):
        limits = {"max_num_batched_tokens": tokens, "max_num_batched_requests": requests}
        with tensor_ops_decode.load(
            text_folder, cpp, num_workers=workers, max_seq_length=64, **limits
        ) as model:
            for pooling in POOLINGS:
                together = model.embed(TEXTS, pooling=pooling)
                alone = np.concatenate([model.embed(each, pooling=pooling) for each in TEXTS])
                assert (together == alone).all()
                found.append((pooling, together.tobytes()))
    assert len(set(found)) == len(POOLINGS)


def test_tokens_are_the_same_as_of_a_model_without(text_folder, cpp):
    answers = []
    for embeddings in (True, False):
        with tensor_ops_decode.load(text_folder, cpp, embeddings=embeddings) as model:
            given = {"max_new_tokens": 9, "ignore_eos": True, "logprobs": 2}
            answers.append(model.generate(["Once", "a longer text than that"], **given))
    assert answers[0] == answers[1]


def test_the_files_say_how_to_pool_and_to_normalize(model):
    raw = model.embed(["One", "Two, three"], pooling="last", normalize=False)
    lengths = np.linalg.norm(raw.astype(np.float64), axis=1, keepdims=True)
    found = model.embed(["One", "Two, three"])
    np.testing.assert_allclose(found, raw / lengths, rtol=1e-6)
    assert (found == model.embed([[*b"One"], [*b"Two, three"]])).all()
    assert model.embed("One").shape == (1, 64)
    assert model.embed([]).shape == (0, 64)


def test_a_prompt_stands_before_texts(text_folder, backend):
    prompts = {"query": "Q: ", "document": ""}
    write_settings(text_folder, prompts=prompts, default_prompt_name="query")
    with tensor_ops_decode.load(text_folder, backend, **SMALL) as model:
        query, plain = model.embed("Q: a"), model.embed("a", prompt="")
        assert not (query == plain).all()
        assert (model.embed("a", prompt_name="query") == model.embed("a", prompt="Q: ")).all()
        assert (model.embed("a") == model.embed("Q: a", prompt="")).all()
        assert (model.embed("a", prompt_name="document") == plain).all()
        assert (model.embed([*b"a"]) == plain).all()  # tokens are the whole
        with pytest.raises(ValueError, match="no prompt 'other'; there are 'query', 'document'"):
            model.embed("a", prompt_name="other")
        with pytest.raises(ValueError, match="give one"):
            model.embed("a", prompt_name="query", prompt="")


def test_a_text_gets_what_the_tokenizer_adds_behind_it(text_folder):
    path = text_folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(
        single="$A <end>", special_tokens=[("<end>", END)]
    )
    tokenizer.save(str(path))
    with tensor_ops_decode.load(text_folder, "python") as model:
        right = model.embed([[*b"ab", END], [END]])
        assert (model.embed(["ab", ""]) == right).all()


def test_a_model_without_settings_wants_pooling(folder, backend):
    with tensor_ops_decode.load(folder, backend, embeddings=True) as model:
        with pytest.raises(ValueError, match="do not say how to pool; give pooling=, one of last"):
            model.embed("a")
        raw = model.embed("a", pooling="mean")
        assert (raw == model.embed("a", pooling="mean", normalize=False)).all()
    with (
        tensor_ops_decode.load(folder, backend) as model,
        pytest.raises(ValueError, match="open the model with embeddings=True"),
    ):
        model.embed("a", pooling="mean")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"texts": ["a", ""]}, ValueError, "text 1: the text is empty"),
        ({"texts": ["a" * 64, "a" * 65]}, ValueError, "text 1: a prompt of 65 tokens is more than"),
        ({"texts": [[1], [260]]}, ValueError, "text 1: tokens must be from 0 to 259"),
        ({"texts": ["\ud800"]}, ValueError, "text 0 has a lone surrogate"),
        ({"texts": 3}, TypeError, "prompts must be texts"),
        ({"pooling": "max"}, ValueError, "pooling must be one of last, mean, cls, weightedmean"),
        ({"normalize": 1}, TypeError, "normalize must be a bool"),
        ({"prompt_name": 1}, TypeError, "prompt_name must be a string"),
        ({"prompt": b"a"}, TypeError, "prompt must be a string"),
    ],
)
def test_wrong_arguments_are_errors_before_any_work(text_folder, given, error, says, monkeypatch):
    monkeypatch.setattr(ReferenceExecutable, "run", None)  # which would be called
    with (
        tensor_ops_decode.load(text_folder, "python", max_seq_length=64) as model,
        pytest.raises(error, match=says),
    ):
        model.embed(**{"texts": "a", **given})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"modules": ["Transformer", "Pooling", "Dense", "Normalize"]},
            "Pooling, Dense, Normalize",
        ),
        ({"modules": ["Transformer"]}, "the modules are Transformer; supported are"),
        ({"pooling": {"pooling_mode_max_tokens": True}}, "got pooling_mode_max_tokens"),
        ({"pooling": {"pooling_mode": "mean_sqrt_len_tokens"}}, "got mean_sqrt_len_tokens"),
        ({"pooling": {"pooling_mode_mean_tokens": False}}, "got none"),
        (
            {"pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}},
            "expected one kind of pooling",
        ),
        (
            {"pooling": {"pooling_mode": "mean", "include_prompt": 3}},
            "include_prompt must be true or false",
        ),
        ({"default_prompt_name": "query"}, "default_prompt_name is 'query'; the prompts are none"),
        ({"prompts": {"query": 3}}, "'query' must be a text, got 3"),
        ({"prompts": [3]}, "prompts must be an object"),
    ],
)
def test_wrong_files_are_errors_by_name(text_folder, settings, says):
    write_settings(text_folder, **settings)
    with (
        tensor_ops_decode.load(text_folder, "python") as model,
        pytest.raises(FileFormatError, match=says),
    ):
        model.embed("a")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "expected a JSON array, got dict"),
        ("[3]", "expected modules with type and path, got 3"),
        ('[{"type": "Transformer", "path": "../other"}]', "expected a folder beside the file"),
        ("[", "the JSON cannot be read"),
    ],
)
def test_wrong_lists_of_modules_are_errors(text_folder, text, says):
    (text_folder / "modules.json").write_text(text)
    with (
        tensor_ops_decode.load(text_folder, "python") as model,
        pytest.raises(FileFormatError, match=says),
    ):
        model.embed("a")


def test_poolings_of_both_ways_to_write_them(text_folder):
    modes = {
        "pooling_mode_lasttoken": ("lasttoken", "last"),
        "pooling_mode_mean_tokens": ("mean", "mean"),
        "pooling_mode_cls_token": ("cls", "cls"),
        "pooling_mode_weightedmean_tokens": ("weightedmean", "weightedmean"),
    }
    for flag, (mode, pooling) in modes.items():
        for given in ({flag: True}, {"pooling_mode": mode}):
            write_settings(text_folder, ("Transformer", "Pooling"), given)
            found = embedding_settings(open_weights(text_folder))
            assert (found.pooling, found.normalize) == (pooling, False)


def test_a_model_of_lower_case_is_refused(text_folder):
    (text_folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(FileFormatError, match=r"sentence_bert_config.json: do_lower_case is True"):
        embedding_settings(open_weights(text_folder))


def test_a_prompt_that_is_not_pooled_is_refused(text_folder):
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    write_settings(text_folder, pooling=pooling, prompts={"query": "Q"})
    with tensor_ops_decode.load(text_folder, "python") as model:
        assert model.embed("a").shape == (1, 64)
        with pytest.raises(FileFormatError, match="include_prompt is false"):
            model.embed("a", prompt_name="query")


@pytest.mark.parametrize("given", [None, 0, 1, 2, 3, 4, 5])
def test_pooling_types_of_gguf_files(tmp_path, given):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    if given is not None:
        writer.add_uint32("qwen3.pooling_type", given)
    writer.add_tensor("output_norm.weight", np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = open_weights(path)
    assert says_how_to_pool(weights) == bool(given)
    if given in (4, 5):
        says = "of a reranker" if given == 4 else "from 0 to 4, got 5"
        with pytest.raises(FileFormatError, match=f"qwen3.pooling_type .*{says}"):
            embedding_settings(weights)
    else:
        found = embedding_settings(weights)
        right = {1: "mean", 2: "cls", 3: "last"}.get(given)
        assert (found.pooling, found.normalize) == (right, True)
        assert embedding_settings(weights, "mean").pooling == "mean"


@pytest.mark.parametrize("says", ["Model", "ForCausalLM"])
@pytest.mark.parametrize("family", ["Qwen 3", "Gemma 2", "own head"])
def test_a_model_without_a_head_makes_embeddings_and_no_tokens(family, says, backend, tmp_path):
    """As the class of the core writes it: without a head, and names without a prefix.

    The folder may name the class with a head all the same, as those of Qwen 3 Embedding do.
    """
    core = model_of(family).model
    core.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    named = [type(core).__name__.replace("Model", says)]
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": named}))
    assert not any("model." in name for name in open_weights(tmp_path).names)
    write_settings(tmp_path)
    right = np.stack([states_of(SimpleNamespace(model=core, config=core.config), TEXTS[2])[-1]])
    with tensor_ops_decode.load(tmp_path, backend, **SMALL) as model:
        assert np.abs(model.embed(TEXTS[2], normalize=False) - right).max() < BOUND
        if core.config.tie_word_embeddings:
            assert model.generate([[1, 2]], max_new_tokens=2)
            return
        for call in (model.generate, model.logprobs):
            with pytest.raises(ValueError, match="the model has no head"):
                call([1, 2])
        with pytest.raises(ValueError, match="the model has no head"):
            model.kernel()
        with pytest.raises(ValueError, match="the model has no head"):
            model.kernel.export(tmp_path / "exported")


def test_a_model_that_attends_to_all_tokens_is_refused(text_folder):
    config = json.loads((text_folder / "config.json").read_text())
    (text_folder / "config.json").write_text(json.dumps({**config, "is_causal": False}))
    with pytest.raises(FileFormatError, match="is_causal is False; only True is supported"):
        tensor_ops_decode.load(text_folder, "python")


def test_ranks_have_the_same_embeddings(text_folder, backend):
    with tensor_ops_decode.load(text_folder, backend, **SMALL) as model:
        alone = model.embed(TEXTS)
    with contextlib.ExitStack() as stack:
        models = [
            stack.enter_context(
                tensor_ops_decode.load(
                    text_folder, backend, world_size=2, mpi_rank=rank, num_workers=1, **SMALL
                )
            )
            for rank in range(2)
        ]
        rows = [each.embed(TEXTS) for each in models]
    assert (rows[0] == rows[1]).all()
    np.testing.assert_allclose(rows[0], alone, atol=1e-5)


def test_guesses_of_a_draft_are_the_same_beside_embeddings(backend, tmp_path):
    model, _ = model_with_draft("Qwen 3.5", tmp_path)
    right = np.stack([states_of(model, tokens).mean(axis=0) for tokens in TEXTS[:3]])
    found = []
    for embeddings in (True, False):
        given = {"num_speculative_tokens": 1, "embeddings": embeddings}
        with open_kernel(tmp_path, backend=backend, **given) as kernel:
            kernel.compile()
            for _ in range(2):
                request = kernel.add_request(TEXTS[1], max_new_tokens=9, ignore_eos=True)
                while kernel.requests:
                    kernel()
                found.append((kernel.tokens(request), kernel.num_accepted(request)))
                (rows,) = kernel.embeddings(TEXTS[:3], pooling="mean")
                assert np.abs(rows - right).max() < BOUND
    assert found == found[:1] * 4


def test_nan_is_an_error_that_names_the_text(text_folder, backend):
    path = text_folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][ord("b"), 3] = float("nan")
    save_file(tensors, path)
    limits = {"max_num_batched_requests": 2}
    with tensor_ops_decode.load(text_folder, backend, **limits) as model:
        assert not np.isnan(model.embed(["a", "c"])).any()
        with pytest.raises(LogitsError, match=r"^text 2: its states are NaN"):
            model.embed(["a", "c", "ab"])


def test_texts_wait_for_requests_of_other_threads(text_folder, backend):
    limits = {"max_seq_length": 32, "max_num_batched_requests": 2, "max_num_pages": 16}
    with tensor_ops_decode.load(text_folder, backend, page_size=4, **limits) as model:
        right, texts = model.embed(["a", "bcd"] * 4), ["a", "bcd"] * 4
        answers = model.generate(["One", "Two"] * 3, max_new_tokens=20, ignore_eos=True)
        found = {}

        def generate():
            found["answers"] = model.generate(
                ["One", "Two"] * 3, max_new_tokens=20, ignore_eos=True
            )

        def embed():
            found["rows"] = model.embed(texts)

        threads = [threading.Thread(target=each) for each in (generate, embed)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (found["rows"] == right).all()
        assert [each.tokens for each in found["answers"]] == [each.tokens for each in answers]


def test_texts_wait_where_a_stream_has_all_slots(text_folder, backend):
    with tensor_ops_decode.load(text_folder, backend, max_num_batched_requests=1) as model:
        right = model.embed("a")
        given = {"max_new_tokens": 9, "ignore_eos": True}
        (answer,) = model.generate("One", **given)
        with model.stream("One", **given) as stream:
            first = next(stream)
            assert (model.embed("a") == right).all()
            assert first + "".join(stream) == answer.text


def test_an_interrupt_leaves_nothing_in_the_kernel(text_folder, interrupt_everywhere):
    functions = {
        *("Embedder.embed", "EmbeddingRequests.embed", "EmbeddingRequests._write"),
        *("PageTable.hold", "PageTable.release", "Requests.retire"),
    }
    limits = {"max_seq_length": 16, "max_num_pages": 4, "page_size": 4}
    with tensor_ops_decode.load(text_folder, "python", **limits) as model:

        def embed():
            return model.embed([[1, 2, 3, 4, 5], [6]])

        right = embed()
        for _ in interrupt_everywhere(embed, functions):
            assert model.kernel.requests == ()
            assert model.kernel.has_room(16)
        assert (embed() == right).all()


def test_errors_of_pooling_are_within_its_bound():
    states = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)
    for pooling in POOLINGS:
        pool = Pool(pooling)
        for begin in range(0, 500, 7):
            pool.add(states[begin : begin + 7])
        weights = {"mean": np.ones(500), "weightedmean": np.arange(1, 501)}.get(pooling)
        if weights is None:
            assert (pool.result() == states[0 if pooling == "cls" else -1]).all()
            continue
        right = [math.fsum(column * weights) / weights.sum() for column in states.T.astype(float)]
        magnitude = weights @ np.abs(states) / weights.sum()
        bound = 500 * 2.0**-53 * magnitude + 2.0**-24 * np.abs(right)
        assert (np.abs(pool.result() - right) <= bound).all()
