"""The command ``tensor-ops serve``."""

import os
from collections.abc import Sequence
from pathlib import Path

from tensor_ops import TensorOpsError
from tensor_ops_decode.commands.options import (
    add_guesses,
    add_running,
    kernel_options,
    model_parser,
)

__all__ = ["serve"]

EXAMPLES = """\
examples:
  tensor-ops serve SmolLM2-135M-Instruct.Q4_1.gguf
  tensor-ops serve ./Qwen3-4B --name qwen --max-num-batched-requests 16 --port 9000
  TENSOR_OPS_API_KEY=secret tensor-ops serve model.gguf --host 0.0.0.0

Clients of OpenAI find it at http://127.0.0.1:8000/v1: chat completions, completions, embeddings
and responses; /health and /metrics say how it is. SIGTERM or Ctrl-C lets it finish what runs, and
a second one ends it at once."""

API_KEY = "TENSOR_OPS_API_KEY"


def serve(argv: Sequence[str]) -> int:
    """Answer requests of OpenAI's clients with a language model, over HTTP.

    This is ``tensor-ops serve``, with the words after the command's name.
    """
    parser = model_parser("serve", serve, EXAMPLES)
    add_running(parser)
    add_guesses(parser)
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0 takes a free one")
    parser.add_argument("--name", help="the model's name for clients; default: that of its file")
    parser.add_argument(
        "--api-key",
        help=f"what requests must bring as Authorization: Bearer; {API_KEY} is not seen by other "
        "users of the machine, as a command is",
    )
    parser.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a site whose pages may ask, such as https://example.org; repeatable",
    )
    parser.add_argument(
        "--max-num-batched-requests",
        type=int,
        default=8,
        help="answers that are computed at the same time; default: 8",
    )
    parser.add_argument("--max-num-batched-tokens", type=int, help="tokens of a step")
    parser.add_argument(
        "--max-waiting",
        type=int,
        default=64,
        help="answers that may wait for a place; further requests are told to come again. "
        "Default: 64",
    )
    parser.add_argument(
        "--max-body-mib", type=float, default=8.0, help="size of a request; default: 8 MiB"
    )
    parser.add_argument(
        "--max-seconds", type=float, default=3600.0, help="time of an answer; default: 3600"
    )
    parser.add_argument("--access-log", action="store_true", help="log a line for each request")
    arguments = parser.parse_args(argv)
    for name, least in (("max_waiting", 0), ("max_body_mib", 0.001), ("max_seconds", 0.001)):
        if not getattr(arguments, name) >= least:
            option = name.replace("_", "-")
            parser.error(f"--{option} must be {least} or larger, got {getattr(arguments, name)}")
    if not 0 <= arguments.port < 65536:
        parser.error(f"--port must be from 0 to 65535, got {arguments.port}")
    try:
        from tensor_ops_decode.serving.server import run_server
    except ImportError as error:
        raise TensorOpsError(
            f"serve needs {error.name}, which is not installed: "
            "pip install 'tensor-ops-decode[serve]'"
        ) from None
    key = arguments.api_key or os.environ.get(API_KEY) or None
    name = arguments.name or Path(os.path.abspath(arguments.model)).name.removesuffix(".gguf")
    try:
        run_server(arguments, name, key, kernel_options(arguments))
    except (ValueError, TypeError) as error:
        raise TensorOpsError(str(error)) from error
    return 0
