"""The command ``tensor-ops export``."""

import sys
from collections.abc import Sequence

from tensor_ops import TensorOpsError
from tensor_ops.extension import ProgressBar, whole_file
from tensor_ops_decode.commands.options import add_guesses, kernel_options, model_parser, show_bytes
from tensor_ops_decode.commands.ranks import check_one_process
from tensor_ops_decode.generation.model import describe
from tensor_ops_decode.kinds.cache_types import CACHE_DTYPES

__all__ = ["export"]

EXAMPLES = """\
examples:
  tensor-ops export model.gguf exported --max-seq-length 4096
  tensor-ops export ./Llama-3.2-1B exported_llama --quantize q8_0 --max-num-batched-requests 1
  tensor-ops export model.gguf program.json
  tensor-ops export model.gguf -

A folder has all that a program without Python needs to run the model: program.json,
weights.safetensors and model.json. A program alone names its weights by file and tensor; it holds
none."""


def export(argv: Sequence[str]) -> int:
    """Write a model into a folder that programs in C++ and other languages can run.

    This is ``tensor-ops export``, with the words after the command's name.
    """
    parser = model_parser("export", export, EXAMPLES)
    add_guesses(parser)
    parser.add_argument(
        "--max-num-batched-requests", type=int, help="the most sequences at a time; default: 8"
    )
    parser.add_argument(
        "--max-num-batched-tokens", type=int, help="the most tokens of a step; default: 256"
    )
    parser.add_argument(
        "--cache-dtype", choices=CACHE_DTYPES, help="of keys and values; default: as the model"
    )
    parser.add_argument(
        "output",
        help="the folder to make; or a file that ends with .json, or - for standard output, to "
        "write the program alone",
    )
    arguments = parser.parse_args(argv)
    check_one_process("export")
    try:
        with describe(arguments.model, arguments.backend, **kernel_options(arguments)) as model:
            if arguments.output == "-":
                print(model.kernel.program.to_json())
            elif arguments.output.endswith(".json"):
                with whole_file(arguments.output) as path:
                    path.write_text(model.kernel.program.to_json() + "\n", encoding="utf-8")
            else:
                with ProgressBar(sys.stderr) as bar:
                    model.kernel.export(arguments.output, show_bytes(bar, "writing"))
    except (ValueError, TypeError) as error:
        raise TensorOpsError(str(error)) from error
    return 0
