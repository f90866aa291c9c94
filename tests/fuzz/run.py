"""Run one target of the fuzzer: python tests/fuzz/run.py TARGET [--runs N] [libFuzzer's options].

TARGET is one of TARGETS. An input that fails is written to the current directory and shown; with
its fix it goes to tests/fuzz/found/TARGET, where test_found.py runs it.

Tested by tests/fuzz/test_found.py.
"""

import importlib
import os
import random
import resource
import sys
from pathlib import Path

import atheris

HERE = Path(__file__).parent
# The branches of these are the native code's.
NATIVE = ("binding", "interface", "decode_programs", "exported_folders", "packed_files")
MODELS = ("model_files", "model_settings", "model_tokenizers", "chat_templates", "model_commands")
# Compilers read its functions, which therefore stay as they are: no branches are watched.
TORCH = ("swapped_modules",)
TARGETS = (*NATIVE, *MODELS, *TORCH, "configuration", "selections", "command")
# Memory that a target may have, so that a number of a file taken for a size is a MemoryError.
MOST_BYTES = 8 << 30


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"{__doc__}\nTARGETS: {' '.join(TARGETS)}")
    target, options = sys.argv[1], sys.argv[2:]
    runs = "1000000"
    if "--runs" in options:
        place = options.index("--runs")
        runs = options[place + 1]
        del options[place : place + 2]
    sys.path[:0] = [str(HERE), str(HERE.with_name("conformance"))]
    if target in NATIVE:
        # native_coverage.c tells libFuzzer, which is loaded before it, of them.
        core = importlib.import_module("atheris.core_with_libfuzzer")
        os.environ["TENSOR_OPS_LIBFUZZER"] = core.__file__
        module = importlib.import_module(target)
    elif target in TORCH:
        try_random(target, int(runs))
        return
    else:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        with atheris.instrument_imports(include=["tensor_ops", "tensor_ops_decode", "json"]):
            module = importlib.import_module(target)
    corpus = Path(f"{target}_corpus")
    corpus.mkdir(exist_ok=True)
    for index, seed in enumerate(getattr(module, "SEEDS", [])):
        (corpus / f"seed_{index}").write_bytes(seed)
    words = [
        f"-runs={runs}",
        "-max_len=160",
        "-len_control=0",
        "-timeout=60",
        "-rss_limit_mb=0",
        *getattr(module, "OPTIONS", []),
        *options,
    ]
    if dictionary := getattr(module, "DICTIONARY", []):
        path = Path(f"{target}_dictionary").resolve()
        hexadecimal = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in dictionary)
        path.write_text("".join(f'"{word}"\n' for word in hexadecimal))
        words.append(f"-dict={path}")
    found = HERE / "found" / target
    folders = [str(corpus.resolve()), *([str(found)] if found.is_dir() else [])]
    atheris.Setup([sys.argv[0], *words, "-print_final_stats=1", *folders], module.try_input)
    atheris.Fuzz()


def try_random(target, runs):
    """Try random inputs, of which libFuzzer makes only short ones where it sees no branches."""
    module = importlib.import_module(target)
    for number in range(runs):
        data = random.randbytes(random.choice([10, 40, 120]))
        try:
            module.try_input(data)
        except BaseException:
            Path(f"found-{target}").write_bytes(data)
            print(f"input {number} is in {Path.cwd() / f'found-{target}'}: {data.hex()}")
            raise
    print(f"{target}: {runs} inputs, nothing found")


if __name__ == "__main__":
    main()
