"""Conversations: `Model.chat`, and ``tensor-ops generate --chat`` on a terminal and on pipes."""

import io
import json
import os
import re
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, processors

import tensor_ops_decode
from byte_models import TEMPLATE, save_model
from tensor_ops.__main__ import main
from tensor_ops_decode.generation.chat_session import ChatSession
from tensor_ops_decode.generation.standard_input import MOST_CHARACTERS

USER = [{"role": "user", "content": "hi"}]
CHAT = ["--chat", "--backend=python", "--max-new-tokens=4", "--ignore-eos"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command with a standard input that is a pipe."""

    def run(*words, stdin):
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode(errors="surrogateescape")), "utf-8")
        monkeypatch.setattr(sys, "stdin", stream)
        capsys.readouterr()
        status = main(["generate", *map(str, words)])
        return SimpleNamespace(returncode=status, **capsys.readouterr()._asdict())

    return run


def test_an_answer_is_that_to_the_prompt_of_the_conversation(folder, backend):
    with tensor_ops_decode.load(folder, backend) as model:
        prompt = model.chat_prompt(USER)
        (expected,) = model.generate([prompt], max_new_tokens=5)
        pieces = []
        answer = model.chat(USER, max_new_tokens=5, stream=lambda _, text: pieces.append(text))
        assert answer == expected
        assert "".join(pieces) == answer.text


def test_a_template_sees_what_a_conversation_has_beside_its_messages(tmp_path):
    save_model(tmp_path, template="{{ messages[0].content }}{{ tools | length }}{{ mood }}")
    with tensor_ops_decode.load(tmp_path, "python") as model:
        variables = {"tools": [{"name": "f"}], "mood": "!"}
        assert model.tokenizer.decode(model.chat_prompt(USER, **variables)) == "hi1!"
        answer = model.chat(USER, max_new_tokens=1, template_variables=variables)
        assert model.tokenizer.decode(answer.prompt_tokens) == "hi1!"
        with pytest.raises(TypeError, match="not JSON serializable"):
            model.chat(USER, template_variables={"mood": object()})


def test_a_prompt_has_one_start_token_whoever_writes_it(tmp_path):
    save_model(tmp_path, template="{{ bos_token }}" + TEMPLATE)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["<begin>"])
    begin = tokenizer.token_to_id("<begin>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<begin> $A", special_tokens=[("<begin>", begin)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bos_token": "<begin>"}))
    with tensor_ops_decode.load(tmp_path, "python") as model:
        answers = [model.chat(USER, max_new_tokens=1), *model.generate("hi", max_new_tokens=1)]
        answers += model.generate("<begin>hi", max_new_tokens=1)
        for answer in answers:
            assert answer.prompt_tokens[0] == begin
            assert answer.prompt_tokens.count(begin) == 1


class Scripted:
    """A model whose tokens are characters, with room for 36, which says "ok" until interrupted."""

    kernel = SimpleNamespace(
        world_size=1, program=SimpleNamespace(limits=SimpleNamespace(longest=36))
    )
    interrupted = False

    def chat_prompt(self, messages, chat_template, parse_special_tokens):
        self.template = chat_template
        return list("".join(f"{message['role'][0]}:{message['content']};" for message in messages))

    def generate(self, prompts, *, stream, max_new_tokens):
        (self.prompt,) = ("".join(prompt) for prompt in prompts)
        if len(self.prompt) > 36:
            raise ValueError("too long")
        for piece in "ok":
            stream(0, piece)
            if self.interrupted:
                raise KeyboardInterrupt
        return ["".join("ok")]


def answer(session, text):
    pieces = []
    return session.answer(text, pieces.append), "".join(pieces)


def test_a_session_keeps_what_was_said():
    model = Scripted()
    session = ChatSession(model, "be", chat_template="brief", max_new_tokens=4)
    assert answer(session, "one") == ("ok", "ok")
    assert answer(session, "two") == ("ok", "ok")
    assert (model.prompt, model.template) == ("s:be;u:one;a:ok;u:two;", "brief")
    assert session.num_forgotten == 0


def test_an_interrupted_answer_stays_as_far_as_it_came():
    model = Scripted()
    session = ChatSession(model, max_new_tokens=4)
    model.interrupted = True
    assert answer(session, "one") == (None, "o")
    model.interrupted = False
    answer(session, "two")
    assert model.prompt == "u:one;a:o;u:two;"


def test_a_session_that_outgrows_the_model_forgets_its_oldest_messages():
    model = Scripted()
    session = ChatSession(model, "be", max_new_tokens=4)
    for text in ("one", "two", "three"):
        answer(session, text)
    assert model.prompt == "s:be;u:two;a:ok;u:three;"
    assert session.num_forgotten == 2
    answer(session, "x" * 20)
    assert model.prompt == "s:be;" + f"u:{'x' * 20};"
    assert session.num_forgotten == 4


def test_a_message_that_has_no_answer_leaves_the_session_as_it_was():
    model = Scripted()
    session = ChatSession(model, max_new_tokens=4)
    answer(session, "one")
    with pytest.raises(ValueError, match="too long"):
        answer(session, "x" * 50)
    answer(session, "two")
    assert model.prompt == "u:one;a:ok;u:two;"


def test_lines_of_a_pipe_are_messages_of_one_conversation(run, folder):
    done = run(folder, *CHAT, "--json", stdin="hi\n\n  \nyou\n/clear\nhi\n/exit\nlate\n")
    assert done.returncode == 0, done.err
    first, second, third = map(json.loads, done.out.splitlines())
    assert first["tokens"] == third["tokens"]
    assert first["prompt_tokens"] == third["prompt_tokens"] == len("<user>hi</><assistant>")
    assert second["prompt_tokens"] > 2 * first["prompt_tokens"]
    # Messages before the last are found in the caches, in whole pages.
    assert (first["shared_tokens"], third["shared_tokens"]) == (0, 16)
    assert second["shared_tokens"] >= first["prompt_tokens"] // 16 * 16


def test_help_lists_the_commands_and_none_of_it_is_said_to_the_model(run, folder):
    done = run(folder, *CHAT, "--json", stdin="/help\nhi\n/help\n")
    assert (done.returncode, done.out.count("\n")) == (0, 1)
    for command in ("/help", "/clear", "/exit", "//"):
        assert done.err.count(f"{command} ") == 2


@pytest.mark.parametrize("line", ["/hlep", "/clear now", " /Exit"])
def test_an_unknown_command_is_told_and_not_sent(run, folder, line):
    done = run(folder, *CHAT, "--json", stdin=f"{line}\nhi\n")
    assert (done.returncode, done.out, done.err.count("\n")) == (1, "", 1)
    assert f"there is no command {line.strip()!r}; there are /help, /clear, /exit" in done.err


@pytest.mark.parametrize(
    ("line", "message"),
    [("//help", "/help"), ("// x", "/ x"), ("/etc/hosts?", "/etc/hosts?"), ("/ x", "/ x")],
)
def test_a_message_may_begin_with_a_slash(run, folder, line, message):
    done = run(folder, *CHAT, "--json", stdin=f"{line}\n")
    assert json.loads(done.out)["prompt_tokens"] == len(f"<user>{message}</><assistant>")


def test_an_answer_that_a_limit_cuts_says_so_and_how_to_get_more(run, folder):
    assert "cut there, a larger --max-new-tokens" in run(folder, *CHAT, stdin="hi").err
    words = ["--chat", "--backend=python", "--ignore-eos", "--max-seq-length=24", "hi"]
    assert "cut there, a larger --max-seq-length" in run(folder, *words, stdin="").err
    for limit in ("--max-new-tokens=5", "--max-seq-length=24"):
        option = limit.partition("=")[0]
        done = run(folder, "--backend=python", "--ignore-eos", limit, "hi", stdin="")
        assert done.err.endswith(f"; the answer was cut there, a larger {option} has more of it\n")
    words[0] = "--stop=\ufffd"  # which a model of random weights soon says
    assert "cut" not in run(folder, *words, stdin="").err


def test_what_was_found_in_the_caches_stands_beside_what_was_read(run, folder):
    done = run(folder, *CHAT, stdin="hi\nyou\n")
    first, second = done.err.splitlines()
    assert "found in the caches" not in first
    assert re.match(r"\d+ tokens read \(\d+ found in the caches\) in ", second)


def test_answers_go_to_standard_output_line_by_line(run, folder):
    done = run(folder, *CHAT, "--system=be brief", stdin="hi")
    assert len(done.out) > 1
    assert done.out.endswith("\n")
    prompt = "<system>be brief</><user>hi</><assistant>"
    assert done.err.startswith(f"{len(prompt)} tokens read in ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("stdin", "message"), [("x" * 60, "80 tokens"), ("\udcff", "utf-8")], ids=["long", "no UTF-8"]
)
def test_a_message_of_a_pipe_without_answer_ends_with_status_1(run, folder, stdin, message):
    done = run(folder, *CHAT, "--max-seq-length=40", stdin=stdin)
    assert (done.returncode, done.err.count("\n")) == (1, 1), done.err
    assert done.err.startswith("tensor-ops: error: ")
    assert message in done.err


def test_a_prompt_of_a_pipe_that_is_no_utf_8_is_an_error(run, folder):
    done = run(folder, "-", stdin="\udcff")
    assert (done.returncode, done.err.count("\n")) == (1, 1), done.err
    assert "utf-8" in done.err


class Endless(io.RawIOBase):
    """A device that never ends, but for a bound of the test itself."""

    def __init__(self):
        self.left = 2 * MOST_CHARACTERS

    def readable(self):
        return True

    def readinto(self, place):
        size = min(len(place), self.left)
        place[:size] = bytes(size)
        self.left -= size
        return size


@pytest.mark.parametrize("words", [["-", "--backend=python"], CHAT], ids=["prompt", "messages"])
def test_standard_input_without_an_end_is_not_read_for_ever(monkeypatch, capsys, folder, words):
    endless = Endless()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless), "utf-8"))
    assert main(["generate", str(folder), *words]) == 1
    told = capsys.readouterr().err
    assert f"a text of more than {MOST_CHARACTERS} characters; expected" in told
    assert told.count("\n") == 1
    assert endless.left > MOST_CHARACTERS // 2


def test_a_conversation_needs_a_template_before_its_first_message(run, tmp_path):
    save_model(tmp_path, template=None)
    done = run(tmp_path, *CHAT, stdin="")
    assert (done.returncode, done.err.count("\n")) == (1, 1)
    assert "no chat template" in done.err


# Makes the pseudo-terminal that is its standard input the one whose Ctrl-C is its, and goes on as
# the program of the arguments.
CONTROLLED = [
    sys.executable,
    "-c",
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    # A shell lets what it starts in the background ignore the signal.
    "signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
]


class Terminal:
    """A conversation on a pseudo-terminal."""

    def __init__(self, *words):
        self._side, side = pytest.importorskip("pty").openpty()
        self.process = subprocess.Popen(
            [*CONTROLLED, "-m", "tensor_ops", "generate", *map(str, words)],
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            env=os.environ | {"TERM": "dumb"},
        )
        os.close(side)

    def write(self, text):
        os.write(self._side, text.encode())

    def read(self, end):
        """Return what is written up to a text, which must come."""
        seen, deadline = b"", time.monotonic() + 60
        while end.encode() not in seen:
            ready, _, _ = select.select([self._side], [], [], max(0, deadline - time.monotonic()))
            assert ready, seen
            seen += os.read(self._side, 1 if len(end) == 1 else 4096)
        return seen.decode(errors="replace")

    def interrupt_prompt(self):
        """Press Ctrl-C until there is a new prompt.

        Python misses a signal that comes after it has printed a prompt and before it waits.
        """
        for _ in range(30):
            self.write("\x03")
            if select.select([self._side], [], [], 2)[0]:
                break
        self.read("> ")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        os.close(self._side)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_ctrl_c_stops_an_answer_on_a_terminal_and_not_the_conversation(folder):
    words = ["--chat", "--backend=python", "--ignore-eos"]
    with Terminal(folder, *words, "--max-seq-length=20000", "--max-new-tokens=19000") as terminal:
        assert "/exit" in terminal.read("\n> ")
        terminal.interrupt_prompt()  # which does nothing
        terminal.write("hi\n")
        terminal.read("hi\r\n")
        terminal.read("\ufffd")  # random weights say all kinds of bytes
        terminal.write("\x03")
        terminal.read("\n> ")
        terminal.write("/clear\n")
        terminal.read("> ")
        terminal.write("/exit\n")
        assert terminal.process.wait(30) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_errors_on_a_terminal_leave_the_conversation_and_ctrl_d_ends_it(folder):
    with Terminal(folder, *CHAT, "--max-seq-length=60") as terminal:
        terminal.read("\n> ")
        terminal.write("x" * 80 + "\n")
        assert "error: " in terminal.read("\n> ")
        terminal.write("hi\n")
        assert "4 written" in terminal.read("\n> ")
        terminal.write("and you\n")
        assert "forgotten" in terminal.read("\n> ")
        terminal.write("\x04")
        assert terminal.process.wait(30) == 0
