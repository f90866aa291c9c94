"""A conversation on the command line: a line of input is a message, the answer follows it."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tensor_ops import TensorOpsError
from tensor_ops_decode.completion import Completion
from tensor_ops_decode.generation.model import MAX_NEW_TOKENS, Model
from tensor_ops_decode.generation.standard_input import read_text
from tensor_ops_decode.ranks.communicator import Communicator

__all__ = ["ChatSession", "converse"]

COMMANDS = {
    "/help": "lists these commands",
    "/clear": "forgets the conversation, all but the message of --system",
    "/exit": "ends it, as Ctrl-D does",
}
GREETING = (
    "Ctrl-C stops an answer, /help lists the commands, /exit or Ctrl-D ends the conversation."
)
_COMMAND = re.compile(r"/[A-Za-z][\w-]*(\s|$)")
PROMPT = "> "


class ChatSession:
    """A conversation with a model, which keeps what was said.

    The message of the system begins it and is never forgotten. The other arguments are those of
    `Model.chat_prompt` and `Model.generate`. Raises ValueError if the model has no such chat
    template, or one that takes no system's message.

    Of an answer that was interrupted, `messages` has what came. The last answer was without the
    oldest `num_forgotten` of them, as they had no place any more.
    """

    def __init__(
        self,
        model: Model,
        system: str | None = None,
        *,
        chat_template: str | None = None,
        parse_special_tokens: bool = False,
        **arguments: Any,
    ) -> None:
        self._prompt = partial(
            model.chat_prompt,
            chat_template=chat_template,
            parse_special_tokens=parse_special_tokens,
        )
        self._model = model
        self._system = [{"role": "system", "content": system}] if system else []
        self._arguments = arguments
        self.messages: list[dict[str, str]] = []
        self.num_forgotten = 0
        self._prompt([*self._system, {"role": "user", "content": "Hello"}])

    def answer(self, text: str, stream: Callable[[str], None]) -> Completion | None:
        """Answer a message, piece by piece; None if Ctrl-C stopped the answer.

        Raises ValueError if there is no answer to this message; the conversation is without it
        then.
        """
        messages, prompt = self._fitting([*self.messages, {"role": "user", "content": text}])
        pieces: list[str] = []

        def take(_: int, piece: str) -> None:
            pieces.append(piece)
            stream(piece)

        completion = None
        # An interrupt may have reached some of several ranks only: they cannot go on together.
        stops = (KeyboardInterrupt,) if self._model.kernel.world_size == 1 else ()
        with contextlib.suppress(*stops):
            (completion,) = self._model.generate([prompt], stream=take, **self._arguments)
        self.num_forgotten = len(self.messages) + 1 - len(messages)
        self.messages = [*messages, {"role": "assistant", "content": "".join(pieces)}]
        return completion

    def _fitting(self, messages: list[dict[str, str]]) -> tuple[list[dict[str, str]], list[int]]:
        """Return the last messages after which there is room for an answer, and their tokens.

        The oldest message goes with its answer. An answer has room for the most tokens that it may
        have, but no more is forgotten for it than leaves half of the sequence to the conversation.
        """
        longest = self._model.kernel.program.limits.longest
        room = min(self._arguments.get("max_new_tokens", MAX_NEW_TOKENS), longest // 2)
        while True:
            prompt = self._prompt([*self._system, *messages])
            if len(prompt) + room <= longest or len(messages) == 1:
                return messages, prompt
            messages = messages[2:]


def converse(
    session: ChatSession,
    report: Callable[[Completion], None],
    ranks: Communicator,
    *,
    quiet: bool,
) -> None:
    """Read messages from standard input until it ends, and write an answer after each.

    A line whose first word is a slash and letters is a command; one that begins with two slashes is
    a message without the first of them. Without a terminal there is no one to try again: what fails
    there, or is interrupted, ends the conversation.

    The first of the `ranks` that share the model reads standard input, which is a TensorOpsError if
    it is closed, is not text, or has too long a line. `report` is called with each answer that was
    not interrupted, after its text, which is left to it if `quiet`.
    """
    is_first = ranks.rank == 0
    if is_first and sys.stdin is None:
        raise TensorOpsError("the messages are those of standard input, which is closed")
    on_terminal = bool(ranks.told("yes" if is_first and sys.stdin.isatty() else ""))
    if on_terminal:
        print(GREETING, file=sys.stderr)
    write = partial(print, end="", flush=True) if not quiet else lambda piece: None
    messages = _messages(on_terminal) if is_first else iter(())
    while (text := ranks.told(next(messages, None))) is not None:
        try:
            if _COMMAND.match(text.strip()):
                _obey(session, text.strip())
                continue
            message = text.removeprefix("/") if text.startswith("//") else text
            answer = session.answer(message, write)
        except (ValueError, KeyboardInterrupt) as error:
            if not on_terminal:
                raise
            print(f"error: {error}" if isinstance(error, ValueError) else "", file=sys.stderr)
            continue
        if answer is not None:
            report(answer)
        elif on_terminal:
            print(flush=True)
        else:
            raise KeyboardInterrupt
        if session.num_forgotten:
            note = f"the oldest {session.num_forgotten} messages had no place any more"
            print(f"{note}, and are forgotten", file=sys.stderr)


def _obey(session: ChatSession, command: str) -> None:
    """Run a command of the conversation, other than the one that ends it."""
    if command not in COMMANDS:
        raise ValueError(
            f"there is no command {command!r}; there are {', '.join(COMMANDS)}, and a message that "
            "begins with a slash is written with two"
        )
    if command == "/clear":
        session.messages = []
    else:
        width = max(map(len, COMMANDS))
        for name, effect in COMMANDS.items():
            print(f"{name:{width}}  {effect}", file=sys.stderr)
        print(f"{'//':{width}}  begins a message that begins with a slash", file=sys.stderr)


def _messages(on_terminal: bool) -> Iterator[str]:
    """Yield the lines of standard input that are messages, until it ends or one says so."""
    with contextlib.suppress(EOFError):
        while True:
            try:
                text = _line(on_terminal).rstrip("\r\n")
            except KeyboardInterrupt:
                if not on_terminal:
                    raise
                print(file=sys.stderr)
                continue
            if text.strip() == "/exit":
                return
            if text.strip():
                yield text
    if on_terminal:
        print(file=sys.stderr)


def _line(on_terminal: bool) -> str:
    if on_terminal and sys.stdout is not None and sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  lets `input` edit the line
        return input(PROMPT)
    line = read_text(sys.stdin.readline)
    if not line:
        raise EOFError
    return line
