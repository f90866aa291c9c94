"""The command ``tensor-ops perplexity``."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tensor_ops import TensorOpsError
from tensor_ops.extension import ProgressBar
from tensor_ops_decode.commands.options import (
    add_running,
    kernel_options,
    model_parser,
    show_bytes,
)
from tensor_ops_decode.commands.ranks import check_one_process
from tensor_ops_decode.generation.model import describe
from tensor_ops_decode.generation.perplexity import perplexity as measure
from tensor_ops_decode.kinds.cache_types import CACHE_DTYPES

__all__ = ["perplexity"]

EXAMPLES = """\
examples:
  tensor-ops perplexity SmolLM2-135M-Instruct.Q4_1.gguf text.txt
  tensor-ops perplexity model.gguf text.txt --context 2048
  tensor-ops perplexity ./Llama-3.2-1B text.txt --quantize q8_0 --json

The text is cut into chunks of --context tokens. Each chunk is read by itself, and the tokens of its
second half are predicted, as llama.cpp's llama-perplexity does. The file is UTF-8; one newline at
its end is no part of the text."""

# Tokens of a step whose logits are computed: more take less time each, and more memory.
_ROWS = 64


def perplexity(argv: Sequence[str]) -> int:
    """Measure how well a model predicts a text.

    This is ``tensor-ops perplexity``, with the words after the command's name.
    """
    parser = model_parser("perplexity", perplexity, EXAMPLES)
    add_running(parser)
    parser.add_argument(
        "--cache-dtype", choices=CACHE_DTYPES, help="of keys and values; default: as the model"
    )
    parser.add_argument("file", type=Path, help="the text")
    parser.add_argument("--context", type=int, default=512, help="tokens of a chunk; default: 512")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = parser.parse_args(argv)
    check_one_process("perplexity")
    try:
        text = arguments.file.read_bytes().decode("utf-8-sig").removesuffix("\n")
        options = {
            "max_seq_length": arguments.context,
            "max_num_batched_requests": _ROWS,
            "max_num_pages": arguments.context,  # of several tokens each: enough for one sequence
            **kernel_options(arguments),
        }
        with describe(arguments.model, arguments.backend, **options) as model:
            model.tokenizer.check_exists()
            with ProgressBar(sys.stderr) as bar:
                model.kernel.compile(show_bytes(bar, "packing"))

                def show(done: int, count: int) -> None:
                    bar.show(done, count, f"{done} of {count} chunks")

                found = measure(model, text, context=arguments.context, progress=show)
    except UnicodeDecodeError as error:
        raise TensorOpsError(f"{arguments.file}: the text is not UTF-8: {error}") from None
    except (ValueError, TypeError) as error:
        raise TensorOpsError(str(error)) from error
    if arguments.json:
        print(json.dumps(dataclasses.asdict(found)))
    else:
        chunks = f"{found.num_scored} tokens of {found.num_chunks} chunks of {found.context}"
        print(f"perplexity {found.value:.4f} +/- {found.error:.5f}, {chunks}")
    return 0
