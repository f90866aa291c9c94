"""The provider in vLLM itself, where that is installed: its IR ops, its compiler, its engine.

The engine generates tokens with small models of random weights, in processes of its own.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
import torch

from tensor_ops_torch.vllm_provider import PROVIDER, TESTED_VERSION, register

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    # Warnings of others while vLLM is imported are not ours to change.
    pytest.mark.filterwarnings("default"),
]
OPS = ("rms_norm", "fused_add_rms_norm")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 256,
    "max_position_embeddings": 256,
}
# Models of random weights that answer with many tokens. Gemma 2 has tied embeddings only.
VARIED = {"initializer_range": 0.2, "tie_word_embeddings": False}
# Qwen3 has norms of parts of rows as well, and Gemma 2 such with float32 weights.
FAMILIES = {"Llama": VARIED, "Qwen3": VARIED, "Gemma2": {"initializer_range": 0.02}}
GENERATE = """
import json, sys

def main():
    from vllm import LLM, SamplingParams

    folder, providers, mode = sys.argv[1:]
    providers = json.loads(providers)
    model = LLM(
        folder,
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=128,
        max_num_seqs=4,
        kv_cache_memory_bytes=2**26,
        enforce_eager=mode == "eager",
        ir_op_priority={"rms_norm": providers, "fused_add_rms_norm": providers},
    )
    prompts = [{"prompt_token_ids": tokens} for tokens in ([1, 5, 9, 20], list(range(40)))]
    greedy = SamplingParams(
        temperature=0, max_tokens=24, ignore_eos=True, detokenize=False, logprobs=0
    )
    answers = [each.outputs[0] for each in model.generate(prompts, greedy)]
    print("answers", json.dumps([[each.token_ids, each.cumulative_logprob] for each in answers]))

if __name__ == "__main__":  # vLLM starts processes that import this file
    main()
"""
RECORDING = """
import os
import tensor_ops_cpp

API_VERSION = 1

def probe():
    return {"available": True, "reason": None, "devices": ["cpu"], "kind": "cpu"}

def info():
    return tensor_ops_cpp.info()

def supports(op, dtype, device):
    return None if op in ("rms_norm", "add_rms_norm") else f"it has no {op}"

def recorded(name):
    def call(*args, **kwargs):
        with open(os.environ["RECORDED_CALLS"], "a") as calls:
            print(name, file=calls)
        return getattr(tensor_ops_cpp, name)(*args, **kwargs)

    return call

rms_norm, add_rms_norm = recorded("rms_norm"), recorded("add_rms_norm")
"""


@pytest.fixture(scope="module")
def ops():
    """The IR ops, after vLLM has loaded its plugins."""
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    from vllm import ir

    return ir.ops


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A function that returns the folder of a small model of a family."""
    import transformers

    folders = {}

    def folder_of(family):
        if family not in folders:
            folders[family] = tmp_path_factory.mktemp(family)
            torch.manual_seed(0)
            config = getattr(transformers, f"{family}Config")(**SIZES, **FAMILIES[family])
            made = getattr(transformers, f"{family}ForCausalLM")(config)
            for name, parameter in made.named_parameters():
                if "norm" in name:
                    # Gemma multiplies by one more than these.
                    torch.nn.init.normal_(parameter, 0 if family == "Gemma2" else 1, 0.2)
            made.save_pretrained(folders[family])
        return folders[family]

    return folder_of


@pytest.fixture(scope="module")
def generate(model, tmp_path_factory):
    """A function that runs vLLM's engine and returns the finished process."""
    script = tmp_path_factory.mktemp("script") / "generate.py"
    script.write_text(GENERATE, encoding="utf-8")

    def run(family, providers, mode, **variables):
        command = [sys.executable, str(script), str(model(family))]
        return subprocess.run(
            [*command, json.dumps(providers), mode],
            env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "DEBUG"} | variables,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def native(generate):
    """A function that returns what a model answers by vLLM's own functions."""
    found = {}

    def answers(family):
        if family not in found:
            found[family] = answers_of(generate(family, ["native"], "eager"))
        return found[family]

    return answers


def answers_of(done):
    """Return the tokens of each answer and the logarithm of their probability."""
    assert done.returncode == 0, done.stderr + done.stdout
    (line,) = re.findall(r"^answers (.*)$", done.stdout, re.MULTILINE)
    return json.loads(line)


def assert_same(answers, expected):
    for (tokens, logprob), (expected_tokens, expected_logprob) in zip(
        answers, expected, strict=True
    ):
        assert tokens == expected_tokens
        assert logprob == pytest.approx(expected_logprob, rel=1e-4)


def arguments(op, dtype, weight_dtype=None, rows=(3, 64)):
    torch.manual_seed(0)
    given = list(op.generate_inputs(num_tokens=3, hidden_size=rows[-1], dtype=dtype))
    given[:-2] = [torch.randn(rows, dtype=dtype) for _ in given[:-2]]
    given[-2] = given[-2].to(weight_dtype or dtype)
    return given


def test_it_is_the_version_of_the_documentation():
    import vllm

    assert vllm.__version__.partition("+")[0] == TESTED_VERSION


def test_importing_the_package_does_not_import_vllm():
    code = "import sys, tensor_ops_torch.vllm_provider; print('vllm' in sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("name", OPS)
def test_vllm_has_it_and_a_second_call_changes_nothing(ops, name, caplog):
    op = getattr(ops, name)
    assert PROVIDER in op.supported_providers()
    registered = op.impls[PROVIDER]
    register()
    assert op.impls[PROVIDER] is registered
    assert caplog.messages == []


def test_a_forced_backend_that_is_missing_disables_only_the_plugin():
    """vLLM logs the error and has no such provider."""
    code = """
from vllm.plugins import load_general_plugins
load_general_plugins()
from vllm import ir
print(ir.ops.rms_norm.supported_providers())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | {"TENSOR_OPS_FORCE_BACKEND": "cuda"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "['native']"
    assert "Failed to load plugin tensor_ops" in done.stdout + done.stderr
    assert "backend 'cuda' (forced by TENSOR_OPS_FORCE_BACKEND)" in done.stdout + done.stderr


@pytest.mark.parametrize("rows", [(1, 64), (5, 3, 129), (300, 2048)])
@pytest.mark.parametrize("weight_dtype", [None, torch.float32])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_it_agrees_with_the_native_functions(ops, name, dtype, weight_dtype, rows):
    op = getattr(ops, name)
    given = arguments(op, dtype, weight_dtype, rows)
    expected = op.impls["native"].impl_fn(*given)
    with op.set_priority([PROVIDER, "native"]), torch.inference_mode():
        assert op.dispatch(*given).provider == PROVIDER
        found = op(*given)
        torch.testing.assert_close(found, expected, **op.get_tolerance(dtype))
        if name == "fused_add_rms_norm":
            assert torch.equal(found[1], expected[1])
            again = op.maybe_inplace(*[each.clone() for each in given[:-1]], given[-1])
            torch.testing.assert_close(again, found, rtol=0, atol=0)


UNSUPPORTED = {
    "no weight": lambda given: [*given[:-2], None, given[-1]],
    "a part of the row": lambda given: [*given, 32],
    "float64": lambda given: [each.double() for each in given[:-1]] + given[-1:],
    "a half weight": lambda given: [*given[:-2], given[-2].bfloat16(), given[-1]],
}


@pytest.mark.parametrize("change", UNSUPPORTED.values(), ids=UNSUPPORTED)
@pytest.mark.parametrize("name", OPS)
def test_the_next_provider_computes_what_it_does_not(ops, name, change):
    op = getattr(ops, name)
    given = change(arguments(op, torch.float32))
    with op.set_priority([PROVIDER, "native"]):
        assert op.dispatch(*given).provider == "native"
        found = op(*given)
    torch.testing.assert_close(found, op.impls["native"].impl_fn(*given), rtol=0, atol=0)


def test_the_server_takes_the_choice():
    from vllm.config.kernel import IrOpPriorityConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    given = parser.parse_args([f"--ir-op-priority.{name}={PROVIDER}" for name in OPS])
    assert given.ir_op_priority == IrOpPriorityConfig(**{name: [PROVIDER] for name in OPS})


def test_vllm_lowers_its_ops_to_it(ops):
    """As vLLM compiles models for GPUs, where its ops are operators until a pass replaces them."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from vllm.compilation.passes.ir.lowering_pass import VllmIRLoweringPass
    from vllm.config import VllmConfig

    def model(x, residual, weight):
        x = ops.rms_norm(x, weight, 1e-5)
        x, residual = ops.fused_add_rms_norm(x, residual, weight, 1e-5)
        return ops.rms_norm(x, None, 1e-5), residual

    given = torch.randn(4, 64), torch.randn(4, 64), torch.randn(64)
    graph = make_fx(model, tracing_mode="fake")(*given)
    lower = VllmIRLoweringPass(VllmConfig())
    priority = [PROVIDER, "native"]
    with ops.rms_norm.set_priority(priority), ops.fused_add_rms_norm.set_priority(priority):
        lower(graph.graph)
    graph.recompile()
    chosen = [sorted(lower.selected_impls[name].values()) for name in OPS]
    assert chosen == [["native", PROVIDER], [PROVIDER]]
    targets = [str(node.target) for node in graph.graph.nodes]
    assert "tensor_ops.rms_norm.default" in targets
    assert "tensor_ops.add_rms_norm.default" in targets
    torch.testing.assert_close(graph(*given), model(*given))


@pytest.mark.parametrize(
    ("family", "mode"), [*((family, "eager") for family in FAMILIES), ("Llama", "compiled")]
)
def test_greedy_tokens_are_those_of_the_native_functions(generate, native, family, mode):
    done = generate(family, [PROVIDER], mode)
    assert_same(answers_of(done), native(family))
    for name in OPS:
        assert f"Priority for vllm.ir.{name} set to ['{PROVIDER}', 'native']" in done.stdout


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_the_model_calls_the_backend(generate, native, tmp_path, mode):
    """A backend that records its calls is called in vLLM's worker, a process of its own."""
    (tmp_path / "recording.py").write_text(RECORDING, encoding="utf-8")
    metadata = tmp_path / "recording-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: recording\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tensor_ops.backends]\nrecording = recording\n")
    variables = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "TENSOR_OPS_FORCE_BACKEND": "recording",
        "RECORDED_CALLS": str(tmp_path / "calls"),
    }
    done = generate("Llama", [PROVIDER], mode, **variables)
    assert_same(answers_of(done), native("Llama"))
    calls = (tmp_path / "calls").read_text(encoding="utf-8").split()
    assert set(calls) == {"rms_norm", "add_rms_norm"}
    # Two layers have four norms, all but the first after the sum with the residual, and the model
    # has one at its end.
    assert calls.count("add_rms_norm") == 4 * calls.count("rms_norm")
