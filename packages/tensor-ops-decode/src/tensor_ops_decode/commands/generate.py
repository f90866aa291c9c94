"""The command ``tensor-ops generate``."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from tensor_ops import TensorOpsError
from tensor_ops.extension import ProgressBar
from tensor_ops_decode.commands.options import (
    add_guesses,
    add_running,
    kernel_options,
    model_parser,
    show_bytes,
)
from tensor_ops_decode.commands.prompt_cache import PromptCache
from tensor_ops_decode.commands.ranks import check_input_ends, ranks_of_command
from tensor_ops_decode.completion import Completion
from tensor_ops_decode.generation.chat_session import ChatSession, converse
from tensor_ops_decode.generation.model import MAX_NEW_TOKENS, Model, describe
from tensor_ops_decode.generation.standard_input import read_text
from tensor_ops_decode.ranks.communicator import Communicator
from tensor_ops_decode.scheduling.sampling import Sampling

__all__ = ["generate"]

EXAMPLES = """\
examples:
  tensor-ops generate SmolLM2-135M-Instruct.Q4_1.gguf "The capital of France is"
  tensor-ops generate model.gguf --chat "Why is the sky blue?" --temperature 0.7
  tensor-ops generate model.gguf --chat --system "Be brief."
  tensor-ops generate ./Llama-3.2-1B --backend python --max-new-tokens 16 "Once"
  tensor-ops generate model.gguf --chat "Name a city." --json-schema city.json
  echo "Translate: good morning" | tensor-ops generate model.gguf -
  mpiexec -n 2 tensor-ops generate model.gguf "Once upon a time"

The text goes to standard output, piece by piece; tokens per second go to standard error. A prompt
from standard input is without the newline at its end, if it has one. A prompt that begins with a
dash comes last, after --. Pipes and files are UTF-8 whatever the locale says, standard input with
or without a byte order mark; a terminal has its own encoding.
--chat without a prompt is a conversation: a line of standard input is a message, and /help lists
the commands that a line may be. When it becomes too long for the model, its oldest messages are
forgotten.
Under mpiexec or torchrun, several processes share the model; the first of them reads and prints."""

_ENCODING = "utf-8-sig"  # programs of Windows begin what they pipe with a byte order mark


def generate(argv: Sequence[str]) -> int:
    """Continue a text with a language model.

    This is ``tensor-ops generate``, with the words after the command's name.
    """
    parser = model_parser("generate", generate, EXAMPLES)
    add_running(parser)
    add_guesses(parser)
    parser.add_argument(
        "prompt", nargs="?", help="the text to continue; - reads it from standard input"
    )
    parser.add_argument(
        "--chat",
        action="store_true",
        help="answer the prompt by the model's chat template; without one, talk",
    )
    parser.add_argument("--system", metavar="TEXT", help="the system's message of --chat")
    parser.add_argument(
        "--chat-template",
        metavar="NAME",
        help="which of the model's templates --chat takes; or a template's text, in Jinja",
    )
    parser.add_argument(
        "--parse-special-tokens",
        action="store_true",
        help="names such as <|im_end|> in messages of --chat stand for the special tokens; "
        "otherwise they are text",
    )
    parser.add_argument(
        "--prompt-cache",
        metavar="FILE",
        type=Path,
        help="keep what was computed of the prompt there; one that begins so need not be read "
        "again. A file of another prompt is replaced",
    )
    parser.add_argument("--max-new-tokens", type=int, help="default: 128")
    parser.add_argument(
        "--temperature", type=float, help="0, the default, takes the likeliest token"
    )
    parser.add_argument("--top-k", type=int, help="sample from so many tokens only")
    parser.add_argument("--top-p", type=float, help="sample from the likeliest")
    parser.add_argument("--min-p", type=float, help="sample from tokens so likely")
    parser.add_argument("--typical-p", type=float, help="sample from typical tokens")
    parser.add_argument(
        "--xtc-probability", type=float, help="so often, leave out the likeliest but one"
    )
    parser.add_argument(
        "--xtc-threshold", type=float, help="how likely these must be; default: 0.1"
    )
    parser.add_argument("--repetition-penalty", type=float, help="of tokens that were there")
    parser.add_argument(
        "--dry-multiplier", type=float, help="penalty of tokens that continue a repetition"
    )
    parser.add_argument("--seed", type=int, help="of sampling; default: 0")
    parser.add_argument(
        "--model-defaults",
        action="store_true",
        help="sample as the model's files say, where the options above do not",
    )
    parser.add_argument("--stop", action="append", default=[], help="end before it; repeatable")
    constraints = parser.add_mutually_exclusive_group()
    constraints.add_argument(
        "--json-schema",
        metavar="FILE",
        type=Path,
        help="answer with JSON that is valid by the schema in this file",
    )
    constraints.add_argument("--regex", help="answer with a text that matches it as a whole")
    constraints.add_argument(
        "--grammar",
        metavar="FILE",
        type=Path,
        help="answer with a text of the grammar in this file, in Lark",
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on after end tokens")
    parser.add_argument("--logprobs", type=int, help="with --json: so many tokens beside each")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each answer")
    arguments = parser.parse_args(argv)
    for option in ("system", "chat-template", "parse-special-tokens", "logprobs"):
        needed = "json" if option == "logprobs" else "chat"
        is_given = getattr(arguments, option.replace("-", "_")) not in (None, False)
        if is_given and not getattr(arguments, needed):
            parser.error(f"--{option} needs --{needed}")
    if arguments.prompt is None and not arguments.chat:
        parser.error(
            "the prompt is missing; - reads it from standard input, and only --chat goes without"
        )
    _use_utf8()
    try:
        with ranks_of_command() as ranks:
            if arguments.prompt == "-":
                check_input_ends(ranks)
            prompt = ranks.told(_prompt(arguments.prompt) if ranks.rank == 0 else None)
            options = {"max_num_batched_requests": 1, **kernel_options(arguments)}
            with describe(arguments.model, arguments.backend, **options) as model:
                model.tokenizer.check_exists()  # before weights are packed for no text
                settings = _settings(arguments, model)
                with ProgressBar(sys.stderr) as bar:
                    keeps = arguments.cache is not None
                    model.kernel.compile(show_bytes(bar, "packing") if keeps else None)
                prompts = PromptCache(model, arguments.prompt_cache)
                prompts.load()
                _answer(model, prompt, arguments, settings, ranks, prompts)
    except (ValueError, TypeError) as error:
        raise TensorOpsError(str(error)) from error
    return 0


def _use_utf8() -> None:
    """Let pipes and files be UTF-8, whatever the locale is; a terminal has its own encoding.

    What is on a pipe comes from another program, or goes to one, and programs exchange UTF-8. The
    locale says what a terminal shows, and Windows has an old code page for it. The ends of lines
    within a prompt stay as they are on every system.
    """
    source, target = sys.stdin, sys.stdout
    if isinstance(source, TextIOWrapper) and source.encoding != _ENCODING and not source.isatty():
        source.reconfigure(encoding=_ENCODING, errors="strict", newline="\n")
    if isinstance(target, TextIOWrapper) and not target.isatty():
        target.reconfigure(encoding="utf-8", errors=target.errors)


def _prompt(prompt: str | None) -> str | None:
    if prompt != "-":
        return prompt
    if sys.stdin is None:
        raise TensorOpsError("the prompt - is standard input, which is closed")
    text = read_text(sys.stdin.read)
    # A newline at the end is from programs such as echo, and no part of the prompt.
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def _answer(
    model: Model,
    prompt: str | None,
    arguments: argparse.Namespace,
    options: dict[str, Any],
    ranks: Communicator,
    prompts: PromptCache,
) -> None:
    """Answer a prompt, or talk if there is none."""

    def report(answer: Completion) -> None:
        prompts.save(answer)
        if arguments.json:
            _print_json(model, answer)
        else:
            _report(model, answer, _how_to_go_on(answer, options))

    of_chat = {
        "chat_template": arguments.chat_template,
        "parse_special_tokens": arguments.parse_special_tokens,
    }
    if prompt is None:
        session = ChatSession(model, arguments.system, **of_chat, **options)
        converse(session, report, ranks, quiet=arguments.json)
        return

    def show(_: int, piece: str) -> None:
        if not arguments.json:
            print(piece, end="", flush=True)

    if arguments.chat:
        system = [{"role": "system", "content": arguments.system}] if arguments.system else []
        messages = [*system, {"role": "user", "content": prompt}]
        report(model.chat(messages, stream=show, **of_chat, **options))
    else:
        report(*model.generate([prompt], stream=show, **options))


def _settings(arguments: argparse.Namespace, model: Model) -> dict[str, Any]:
    """Return how to generate: as the options say, then as the model's files do if asked for."""
    names = [field.name for field in fields(Sampling) if field.name in arguments]
    names += ["max_new_tokens", "stop", "ignore_eos", "logprobs", "regex"]
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    for name in ("json_schema", "grammar"):
        if (path := getattr(arguments, name)) is not None:
            given[name] = _read(path)
    return {**(model.defaults if arguments.model_defaults else {}), **given}


def _read(path: Path) -> str:
    """Return the text of a file that an option names."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TensorOpsError(f"cannot read {path}: {error.strerror}") from None


def _how_to_go_on(answer: Completion, options: dict[str, Any]) -> str:
    """Return what to say of a text that a limit has cut, and nothing of one that has an end."""
    if answer.finish_reason != "length":
        return ""
    most = options.get("max_new_tokens", MAX_NEW_TOKENS)
    option = "--max-new-tokens" if len(answer.tokens) >= most else "--max-seq-length"
    return f"; the answer was cut there, a larger {option} has more of it"


def _print_json(model: Model, answer: Completion) -> None:
    record = {
        "text": answer.text,
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish_reason,
        "prompt_tokens": len(answer.prompt_tokens),
        "shared_tokens": answer.shared_tokens,
        "backend": model.kernel.backend,
        "prompt_seconds": answer.prompt_seconds,
        "tokens_per_second": _rate(answer),
    }
    if answer.logprobs is not None:
        record["logprobs"] = [each._asdict() for each in answer.logprobs]
    print(json.dumps(record), flush=True)


def _report(model: Model, answer: Completion, cut: str) -> None:
    """End the line of the text, and print one about the speed and why the text has ended."""
    print(flush=True)
    rate = _rate(answer)
    speed = "" if rate is None else f", {rate:.1f} tokens per second"
    shared = f" ({answer.shared_tokens} found in the caches)" if answer.shared_tokens else ""
    read = f"{len(answer.prompt_tokens)} tokens read{shared} in {answer.prompt_seconds:.2f} s"
    written = f"{len(answer.tokens)} written{speed}"
    print(f"{read}, {written}, on {model.kernel.backend}{cut}", file=sys.stderr)


def _rate(answer: Completion) -> float | None:
    """Return the tokens per second after the first one, if there are more."""
    several = len(answer.tokens) - 1
    return several / answer.decode_seconds if several else None
