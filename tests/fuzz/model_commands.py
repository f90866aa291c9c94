"""Commands that open models, on any words, streams and files: one line, and no half a file."""

import contextlib
import io
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import tokenizers
from choices import Choices
from model_bytes import safetensors
from outputs import OUTPUTS, output
from tokenizers import decoders, models, pre_tokenizers

from tensor_ops.__main__ import main

__all__ = ["try_input"]

RUNS = 40
OPTIONS = ["-max_len=120", "-timeout=60"]
NUMBERS = [
    "1", "2", "5", "0", "-1", "", "3.5", "1e999", "nan", "x", "16", "63", "64", "65", "128",
    "2147483648", "9223372036854775808", "99999999999999999999999", "0x10", "\u0663", " 4", "1_0",
]  # fmt: skip
NAMES = ["q8_0", "q4_1", "int8", "int8x2", "bfloat16", "float32", "float16", "", "Q8_0", "q9", "é"]
TEXTS = [
    "hi", "", " ", "-", "--", "-5", "a b", "\udc80", "é\n", "<|im_end|>", "/help", "x" * 200, "%s",
    "{}", "\x01", "<end>", "//x",
]  # fmt: skip
FILES = [
    "new.json", "old.json", "new.svg", "old.pdf", "new.gif", "exported", "folder", "missing/x.json",
    "/dev/full", "/dev/null", "-", "", "\udc80.json", "n" * 300, "n" * 250 + ".json", "link.json",
    "old.json/x.json", "noprogram",
]  # fmt: skip
MODELS = [
    "model", "model", "model", "model", "no_tokenizer", "no_template", "missing", "folder", "", ".",
    "old.json", "model/config.json", "model/model.safetensors", "/dev/null", "\udc80", "broken",
]  # fmt: skip
BACKENDS = ["python", "python", "cpp", "cdua", "", "auto", "cuda"]
SHARED = {
    "--max-seq-length": NUMBERS,
    "--activations": NAMES,
    "--quantize": NAMES,
    "--quantize-head": NAMES,
    "--adapter": FILES,
    "--none-such": ["", "1"],
    "--help": None,
    "-h": None,
    "--Chat": None,
}
RUNNING = {"--num-workers": NUMBERS[:9], "--cache": ["cache", *FILES]}
COMMANDS = {
    ("generate",): {
        **SHARED,
        **RUNNING,
        **dict.fromkeys(["--chat", "--chat", "--json", "--model-defaults", "--ignore-eos"]),
        **dict.fromkeys(["--parse-special-tokens", "--parse_special_tokens"]),
        **dict.fromkeys(["--system", "--stop", "--chat-template"], TEXTS),
        **dict.fromkeys(["--max-new-tokens", "--temperature", "--top-k", "--top_p"], NUMBERS),
        **dict.fromkeys(["--min-p", "--repetition-penalty", "--seed", "--logprobs"], NUMBERS),
        **dict.fromkeys(["--typical-p", "--dry-multiplier", "--xtc-probability"], NUMBERS),
        **dict.fromkeys(["--xtc-threshold", "--num-speculative-tokens"], NUMBERS),
    },
    ("export",): {
        **SHARED,
        "--num-speculative-tokens": NUMBERS,
        "--max-num-batched-requests": NUMBERS,
        "--max-num-batched-tokens": NUMBERS,
        "--cache-dtype": NAMES,
    },
    ("bench", "decode"): {
        **SHARED,
        **RUNNING,
        "--prompt-tokens": NUMBERS,
        "--new-tokens": NUMBERS,
        "--json": FILES,
        "--plot": FILES,
    },
}
# Contents of standard input; None is a closed one.
INPUTS = [
    b"",
    b"hi",
    b"hi\r\n",
    b"hi\n/help\n\n//x\n/clear\nyou\n/exit\nlate",
    b"/foo\n",
    b"\xff",
    None,
]
SEEDS = [
    bytes([0, 0, 0]),
    bytes([0, 3, 8, 12, 0, 1, 2, 0]),
    bytes([1, 0, 0, 0, 0, 5]),
    bytes([2, 2, 40, 2, 41, 1]),
]
_folder = tempfile.TemporaryDirectory(prefix="fuzz-model-commands-")
ROOT = Path(_folder.name)
HIDDEN, VOCABULARY = 16, 259
LIMIT = 700  # bytes of a file, where a disk is full


def try_input(data):
    choices = Choices(data)
    words = _words(choices)
    given, out = choices.pick(INPUTS), choices.pick(OUTPUTS)
    # Compilers of OpenCL, which other backends may look at, end the process where a disk is full.
    is_full = "python" in words and choices.below(8) == 7
    place = _place()
    os.environ["TENSOR_OPS_CONFIG"] = ""
    os.chdir(place)
    status, told = _run(words, given, out, is_full)
    context = (words, given, out, is_full, status, told)
    assert status in (0, 1, 2), context
    assert "Traceback" not in told, context
    errors = [line for line in told.splitlines() if "error: " in line]
    if status == 0:
        assert not errors, context
    elif out == "memory" or errors:
        assert len(errors) == 1, context
        assert errors[0].startswith("tensor-ops"), context
    _check_files(place, context)
    os.chdir(ROOT)
    shutil.rmtree(place)


def _words(choices):
    command = choices.pick([*COMMANDS, ("generate",)])
    options = COMMANDS[command]
    positionals = [choices.pick(MODELS)]
    if command == ("export",):
        positionals += [choices.pick(FILES)]
    elif command == ("generate",) and choices.below(3) != 0:
        positionals += [choices.pick(TEXTS)]
    if choices.rarely():
        positionals += [choices.pick(TEXTS)]
    groups = [["--backend", choices.pick(BACKENDS)]]
    # Small numbers, so that few of the commands take long.
    groups += [["--max-new-tokens=3"]] * (command == ("generate",))
    groups += [["--prompt-tokens=4"], ["--new-tokens=3"]] * (command == ("bench", "decode"))
    for _ in range(choices.below(5)):
        name = choices.pick([*options])
        values = options[name]
        if values is None:
            groups.append([name])
        elif choices.rarely():
            groups.append([name, choices.pick(values)])
        else:
            groups.append([f"{name}={choices.pick(values)}"])
    for each in positionals:
        groups.insert(choices.below(len(groups) + 1), [each])
    words = [word.replace("\0", "") for group in groups for word in group]
    return [*command, *words]


def _place():
    """Return a new folder with models and files, which the command may write to."""
    place = ROOT / "work"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(_models(), place)
    (place / "folder").mkdir()
    (place / "old.json").write_text('"old"')
    (place / "old.pdf").write_text('"old"')
    (place / "link.json").symlink_to("old.json")
    return place


def _models():
    """Return a folder of models, which is made once."""
    made = ROOT / "models"
    if made.exists():
        return made
    draw = np.random.default_rng(0)
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        f"{layer}input_layernorm.weight": (HIDDEN,),
        f"{layer}post_attention_layernorm.weight": (HIDDEN,),
        **{f"{layer}self_attn.{each}_proj.weight": (HIDDEN, HIDDEN) for each in "qkvo"},
        **{f"{layer}mlp.{each}_proj.weight": (32, HIDDEN) for each in ("gate", "up")},
        f"{layer}mlp.down_proj.weight": (HIDDEN, 32),
    }
    header, data = {}, b""
    for name, shape in shapes.items():
        piece = draw.standard_normal(shape).astype(np.float32).tobytes()
        offsets = [len(data), len(data) + len(piece)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        data += piece
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "eos_token_id": 256,
    }
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
    )
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab={letter: token for token, letter in enumerate(letters)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<|im_start|>", "<|im_end|>"])
    for name in ("model", "no_tokenizer", "no_template", "broken"):
        folder = made / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes(safetensors(header, data))
        settings = {} if name == "no_template" else {"chat_template": template}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        if name != "no_tokenizer":
            tokenizer.save(str(folder / "tokenizer.json"))
    (made / "broken" / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 40))
    return made


def _run(words, given, out, is_full):
    """Return the status of a command, and what it wrote to standard error."""
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    stdin = None if given is None else io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = sys.stdin
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context(output(out))))
        stack.enter_context(contextlib.redirect_stderr(err))
        sys.stdin = stdin
        if is_full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, limits[1]))
        try:
            status = main(words)
        except SystemExit as exit:
            status = exit.code
        finally:
            sys.stdin = before
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        err.flush()
    return status, err.buffer.getvalue().decode()


def _check_files(place, context):
    """Every file that is there is as it was or a whole one, and nothing unknown is left."""
    known = {each.name for each in _models().iterdir()} | {"folder", "cache", *FILES}
    for path in place.iterdir():
        assert path.name in known, (path, context)
        if not path.is_file():  # where --cache has made a folder
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        if path.suffix in (".svg", ".pdf") and path.read_text(errors="replace") != '"old"':
            assert path.stat().st_size > LIMIT, (path, context)
    exported = place / "exported"
    if exported.is_dir() and any(exported.iterdir()) and "cache" not in str(context[0]):
        found = {each.name for each in exported.iterdir()}
        assert found == {"model.json", "program.json", "weights.safetensors"}, (found, context)
        assert (exported / "weights.safetensors").stat().st_size > LIMIT, context
