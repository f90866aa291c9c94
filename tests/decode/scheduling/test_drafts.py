"""Guesses by a layer that a model brings for that: answers are those without, in fewer steps."""

import contextlib
import json
import shutil
import threading

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from draft_models import expected_answer, model_with_draft, write_gguf_with_draft
from greedy_models import open_kernel
from tensor_ops.extension import load_backend
from tensor_ops_decode import Builder, Limits, Program, ProgramError, Tensor, reference

PROMPTS = [[3, 200, 17], np.random.default_rng(1).integers(0, 331, 21).tolist()]
NEW = 20
FAMILIES = ("Qwen 3.5", "Qwen 3.5 MoE", "Qwen 3 Next", "GLM 4 MoE", "DeepSeek V3", "GLM 4.7 Flash")
pytestmark = pytest.mark.sampled(4, "drafted", "backend", "guesses")
OPTIONS = {"max_num_batched_requests": 2, "max_num_batched_tokens": 16, "page_size": 4}


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda name: name.replace(" ", "-"))
def drafted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return folder, *model_with_draft(request.param, folder)


def opened(folder, backend, guesses, **options):
    given = OPTIONS | {"num_speculative_tokens": guesses} | options
    kernel = open_kernel(folder, backend=backend, **given)
    kernel.compile()
    return kernel


def answers(kernel, prompts=PROMPTS, **how):
    """Return the tokens of prompts at once, and how many had been guessed."""
    requests = [
        kernel.add_request(prompt, max_new_tokens=NEW, ignore_eos=True, **how) for prompt in prompts
    ]
    while kernel.requests:
        kernel()
    return [(kernel.tokens(each), kernel.num_accepted(each)) for each in requests]


@pytest.mark.parametrize("guesses", [1, 3])
def test_guesses_are_those_of_transformers(drafted, backend, guesses):
    folder, model, draft = drafted
    right = [expected_answer(model, draft, prompt, NEW, guesses) for prompt in PROMPTS]
    assert sum(accepted for _, accepted in right) > 2
    with opened(folder, backend, guesses) as kernel:
        assert answers(kernel) == right
        assert kernel.explain().guesses_by == "the draft of the model"


def test_guesses_may_be_among_the_first_words_alone(drafted, backend):
    """Words behind them are said as without, and never guessed."""
    folder, model, draft = drafted
    plain = [expected_answer(model, draft, prompt, NEW, 0)[0] for prompt in PROMPTS]
    said = sorted(token for answer in plain for token in answer)
    words = said[len(said) * 3 // 4]  # so that a fourth of what is said cannot be guessed
    right = [expected_answer(model, draft, prompt, NEW, 2, words) for prompt in PROMPTS]
    assert sum(accepted for _, accepted in right) > 0
    with opened(folder, backend, 2, draft_vocab_size=words) as kernel:
        assert answers(kernel) == right
        assert kernel.program.values["draft.logits"].columns == words
    with opened(folder, backend, 2, draft_vocab_size=10**6) as kernel:
        assert kernel.program.values["draft.logits"].columns == 331


def test_a_vocabulary_of_guesses_needs_guesses():
    with pytest.raises(ValueError, match="draft_vocab_size is about guesses, and there are none"):
        open_kernel("model", draft_vocab_size=8)
    with pytest.raises(ValueError, match="draft_vocab_size must be a positive integer, got 0"):
        open_kernel("model", draft_vocab_size=0, num_speculative_tokens=1)


def test_files_of_llama_cpp_have_the_same(drafted, backend, tmp_path):
    folder, model, draft = drafted
    path = tmp_path / "model.gguf"
    write_gguf_with_draft(model, draft, path)
    with opened(folder, backend, 2) as kernel:
        right = answers(kernel)
    with opened(path, backend, 2) as kernel:
        assert answers(kernel) == right


def test_requests_that_come_and_go_have_the_answers_of_each_alone(drafted, backend):
    """They share beginnings, draw tokens, wait for them, and are cancelled."""
    folder, _, _ = drafted
    random = np.random.default_rng(7)
    begin = random.integers(0, 331, 14).tolist()
    cases = []
    for number in range(24):
        shared = begin[: int(random.integers(0, 15))]
        prompt = [*shared, *random.integers(0, 331, int(random.integers(1, 9))).tolist()]
        how = {"max_new_tokens": int(random.integers(1, 13)), "ignore_eos": True}
        if number % 3 == 1:
            how |= {"temperature": 0.8, "seed": number}
        if number % 4 == 2:
            how |= {"repetition_penalty": 1.3}
        cases.append((prompt, how))
    with opened(folder, backend, 0) as kernel:
        right = []
        for prompt, how in cases:
            request = kernel.add_request(prompt, **how)
            while kernel.requests:
                kernel()
            right.append(kernel.tokens(request))
            kernel.remove(request)
    with opened(folder, backend, 3, max_num_pages=18) as kernel:
        going, left = {}, list(enumerate(cases))
        while left or going:
            while left and len(kernel.requests) < 2:
                index, (prompt, how) = left[0]
                if not kernel.has_room(len(prompt) + how["max_new_tokens"]):
                    break
                del left[0]
                going[kernel.add_request(prompt, **how)] = index
            kernel()
            for request in list(going):
                if kernel.finish_reason(request) is not None:
                    assert kernel.tokens(request) == right[going.pop(request)]
                elif random.random() < 0.03:
                    found = kernel.tokens(request)
                    assert found == right[going.pop(request)][: len(found)]
                    kernel.remove(request)


def test_a_caller_that_gives_tokens_gets_the_same_logits(drafted, backend):
    folder, _, _ = drafted
    seen = []
    for guesses in (0, 2):
        with opened(folder, backend, guesses) as kernel:
            other = kernel.add_request(PROMPTS[1], max_new_tokens=NEW, ignore_eos=True)
            request = kernel.add_request(PROMPTS[0], choose=False)
            logits = []
            while len(logits) < 4:
                kernel()
                if request in kernel.waiting:
                    logits.append(kernel.logits(request).tolist())
                    kernel.extend(request, [5, 6])
            seen.append(logits)
            assert kernel.tokens(other)
    assert seen[0] == seen[1]


def test_prompts_are_kept_with_what_the_draft_has_of_them(drafted, backend, tmp_path):
    folder, _, _ = drafted
    prompt = [PROMPTS[1]]
    with opened(folder, backend, 2) as kernel:
        right = answers(kernel, prompt)
        kernel.reset()
        assert kernel.save_prompt(tmp_path / "prompt", PROMPTS[1]) == 20
    with opened(folder, backend, 2) as kernel:
        kernel.load_prompt(tmp_path / "prompt")
        assert answers(kernel, prompt) == right


@pytest.mark.parametrize("words", [None, 192])
def test_ranks_guess_the_same(drafted, backend, words):
    folder, _, _ = drafted
    given = {"cache_dtype": "float32", "draft_vocab_size": words}
    with opened(folder, backend, 2, **given) as kernel:
        right = answers(kernel)
    given |= {"world_size": 2, "num_workers": 1}
    with contextlib.ExitStack() as stack:
        kernels = [
            stack.enter_context(opened(folder, backend, 2, mpi_rank=rank, **given))
            for rank in range(2)
        ]
        assert kernels[1].explain().guesses_by == "the draft of the model"
        found = [None, None]
        threads = [
            threading.Thread(target=lambda i=i: found.__setitem__(i, answers(kernels[i])))
            for i in range(2)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert found == [right, right]


def test_heads_are_packed_once(drafted, tmp_path):
    pytest.importorskip("tensor_ops_cpp")
    folder, _, draft = drafted
    sizes = []
    for guesses in (0, 1):
        with opened(folder, "cpp", guesses, cache=tmp_path) as kernel:
            sizes.append(kernel.explain().memory["weights"])
            right = answers(kernel)
        with opened(folder, "cpp", guesses, cache=tmp_path) as kernel:
            assert "mapped from" in kernel.explain().packed_file
            assert answers(kernel) == right
    size = sum(4 * each.numel() for each in draft.state_dict().values())
    assert size < sizes[1] - sizes[0] < 1.2 * size  # tiles have whole rows


def test_a_damaged_layer_guesses_nothing(drafted, backend, tmp_path):
    """Its NaN are no tokens, and the answers are the model's."""
    folder, _, _ = drafted
    tensors = load_file(folder / "model.safetensors")
    (name,) = (name for name in tensors if name.endswith(("mtp.fc.weight", "eh_proj.weight")))
    tensors[name][:] = float("nan")
    shutil.copy(folder / "config.json", tmp_path)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with opened(folder, backend, 0) as kernel:
        right = answers(kernel)
    with opened(tmp_path, backend, 2) as kernel:
        assert answers(kernel) == right
        assert {accepted for _, accepted in right} == {0}


def test_exported_models_have_no_draft(drafted, tmp_path):
    folder, _, _ = drafted
    with opened(folder, "python", 2) as kernel:
        kernel.export(tmp_path / "drafted")
    with opened(folder, "python", 2) as kernel:
        program = kernel.program
    exported = Program.from_json((tmp_path / "drafted" / "program.json").read_text())
    assert exported.draft is None
    assert len(exported.nodes) == program.num_step_nodes
    assert exported.outputs == ("logits", "next")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"first_node": "nothing"}, "draft: first_node is 'nothing', which is no node"),
        ({"hidden": "guess"}, "draft: hidden is 'guess', which is no output of a step"),
        ({"hidden": "logits"}, "'logits'"),
        ({"tokens": "next"}, "draft: tokens is 'next', which is no output of a draft step"),
        ({"next_hidden": "norm"}, "draft: next_hidden is 'norm', which is no output of a draft"),
        ({"next_hidden": "guess"}, "draft: next_hidden 'guess' must have 48 columns of float32"),
        ({"tokens": "draft.norm"}, "draft: tokens 'draft.norm' must have 1 columns of int32"),
        ({"hidden": "next"}, "draft: hidden 'next' must have a row for each token"),
        ({"first_node": "guess"}, "draft: "),
    ],
)
def test_drafts_that_do_not_fit_are_refused(drafted, change, says):
    folder, _, _ = drafted
    with opened(folder, "python", 1) as kernel:
        program = json.loads(kernel.program.to_json())
    program["draft"] |= change
    with pytest.raises(ProgramError) as caught:
        Program.from_json(json.dumps(program))
    assert says in str(caught.value)
    cpp = pytest.importorskip("tensor_ops_cpp")
    assert "draft: " in cpp.supports_program(json.dumps(program))


def test_an_executable_without_a_draft_says_so(backend):
    builder = Builder(Limits(1, 1, 1, 64, 16, 4))
    table = builder.tensor("table", Tensor("f32", (10, 8), {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    text = builder.program([x]).to_json()
    module = reference if backend == "python" else load_backend(backend).module
    executable = module.compile_program(text, {"table": np.zeros((10, 8), np.float32)})
    with pytest.raises(ValueError, match="run_draft: the program has no draft"):
        executable.run_draft(1, 0)
    executable.close()
