"""One trace of requests for Python's scheduler and for the sequences of C++, which decide nothing.

`TRACE` has more requests than there are slots, prompts longer than a step, and tokens of more pages
than there are. What one of them has no room for waits here until others are done: the tokens are
those that there are with room for all.
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from exported_models import LIMITS, export
from small_families import small_model
from tensor_ops_decode import CapacityError, PersistentKernel

ROOM = {**LIMITS, "page_size": 16, "max_num_pages": 7}
SAMPLED = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "seed": 2**63 + 5}
# "open" and "append" say how many tokens are to follow, and "run" for whom they are awaited;
# meanwhile the others go on.
TRACE = [
    ("open", "a", list(b"Once"), 40),
    ("open", "b", list(b"a long prompt, of several steps and pages"), 30),
    ("open", "c", [7], 60),
    ("open", "d", list(b"waits for a slot"), 20),
    ("run", "a"),
    ("truncate", "a", 12),
    ("append", "a", list(b"upon a time"), 25),
    ("open", "e", list(b"sampled"), 50, SAMPLED),
    ("open", "f", list(b"is closed before it is done"), 60),
    ("run", "b"),
    ("truncate", "b", 16),
    ("append", "b", [], 33),
    ("run", "d"),
    ("close", "f"),
    ("append", "d", list(b"that one of the others has had before it"), 9),
    ("run", "a"),
    ("close", "a"),
    ("open", "a", list(b"Once"), 3),
    ("run", "a"),
    ("append", "a", list(b"upon a time"), 70),
    ("truncate", "d", 1),
    ("append", "d", [], 1),
    ("open", "g", list(b"g") * 64, 1),
    *(("run", name) for name in "abcdeg"),
]


class NoRoomError(Exception):
    """There is no slot, or there are not enough pages."""


class CppScheduler:
    """The sequences of an exported model."""

    def __init__(self, say):
        self._say, self._opened = say, 0

    def open(self, tokens, _, sampling):
        if self._say("sequence"):
            raise NoRoomError("slots")
        handle, self._opened = self._opened, self._opened + 1
        if sampling:
            assert self._say("sampling", handle, *sampling.values()) == ""
        self._append(handle, tokens)
        return handle

    def edit(self, handle, length, tokens):
        """Return what the sequence is called by from now on."""
        assert self._say("truncate", handle, length) == ""
        self._append(handle, tokens)
        return handle

    def grow(self, left):
        found = self._say("generate", min(left.values()), *left)
        if found.startswith("MemoryError"):
            raise NoRoomError("pages")
        rows = found.removesuffix(";").split(";")
        return {handle: list(map(int, row.split())) for handle, row in zip(left, rows, strict=True)}

    def close(self, handle):
        assert self._say("close", handle) == ""

    def _append(self, handle, tokens):
        if self._say("append", handle, *tokens).startswith("MemoryError"):
            self.close(handle)
            raise NoRoomError("pages")


class PythonScheduler:
    """The requests of a kernel, which end by themselves when they have all their tokens."""

    def __init__(self, kernel):
        self._kernel = kernel

    def open(self, tokens, count, sampling):
        try:
            return self._kernel.add_request(
                tokens, max_new_tokens=count, ignore_eos=True, **sampling
            )
        except ValueError:
            raise NoRoomError("slots") from None

    def edit(self, handle, *_):
        """Return None, since what has been changed is another request."""
        self.close(handle)

    def grow(self, left):
        try:
            return self._kernel.run(min(left.values()))
        except CapacityError:
            raise NoRoomError("pages") from None

    def close(self, handle):
        self._kernel.remove(handle)


@dataclass
class Played:
    """A sequence of the trace; where it has no handle it is not open, or no longer."""

    tokens: list[int]
    left: int
    sampling: dict[str, float]
    handle: int | None = None


class Player:
    """Plays events on a scheduler, and counts what that had no room for."""

    def __init__(self, scheduler):
        self._scheduler = scheduler
        self.sequences: dict[str, Played] = {}
        self.refused: Counter[str] = Counter()
        self._waits = False  # until others are done, or closed

    def play(self, trace):
        for event, name, *arguments in trace:
            getattr(self, event)(name, *arguments)
        return {name: each.tokens for name, each in self.sequences.items()}

    def open(self, name, tokens, count, sampling=None):
        self.sequences[name] = Played(list(tokens), count, sampling or {})

    def truncate(self, name, length):
        self._edit(name, length, [])

    def append(self, name, tokens, count):
        self._edit(name, len(self.sequences[name].tokens), tokens)
        self.sequences[name].left = count

    def close(self, name):
        self._let_go(self.sequences.pop(name))

    def run(self, name):
        while self.sequences[name].left:
            self._open_waiting()
            self._grow()

    def _edit(self, name, length, tokens):
        sequence = self.sequences[name]
        assert sequence.left == 0, f"{name} has other tokens on another scheduler"
        sequence.tokens[length:] = tokens
        if sequence.handle is not None:
            handle, sequence.handle = sequence.handle, None
            try:
                sequence.handle = self._scheduler.edit(handle, length, tokens)
            except NoRoomError as error:
                self.refused[str(error)] += 1

    def _open_waiting(self):
        for each in self.sequences.values():
            while each.left and each.handle is None and not self._waits:
                try:
                    each.handle = self._scheduler.open(each.tokens, each.left, each.sampling)
                except NoRoomError as error:
                    self.refused[str(error)] += 1
                    self._waits = not self._let_go_of_one_done()

    def _grow(self):
        growing = [
            each for each in self.sequences.values() if each.left and each.handle is not None
        ]
        try:
            found = self._scheduler.grow({each.handle: each.left for each in growing})
        except NoRoomError as error:
            self.refused[str(error)] += 1
            if not self._let_go_of_one_done():
                assert len(growing) > 1, "one sequence alone has no room"
                self._let_go(growing[-1])
                self._waits = True
            return
        for each in growing:
            tokens = found.get(each.handle, [])
            each.tokens += tokens
            each.left -= len(tokens)
            if not each.left:
                self._waits = False

    def _let_go_of_one_done(self):
        """Close a sequence that has all its tokens; return whether there is one."""
        for each in self.sequences.values():
            if not each.left and each.handle is not None:
                self._let_go(each)
                return True
        return False

    def _let_go(self, sequence):
        if sequence.handle is not None:
            self._scheduler.close(sequence.handle)
        sequence.handle, self._waits = None, False


def play_in_python(folder, backend, **limits):
    with PersistentKernel(model=folder, backend=backend, **limits) as kernel:
        kernel.compile()
        player = Player(PythonScheduler(kernel))
        return player.play(TRACE), player.refused


@pytest.fixture(params=["attention alone", "LFM2", "Qwen 3.5", "Gemma 4"])
def traced(request, folder, tmp_path):
    """A model of any layers, two with states that are not taken back, and one of shared caches."""
    if request.param == "attention alone":
        return folder
    small_model(request.param).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def test_a_trace_has_the_same_tokens_on_both(traced, cpp, driver, tmp_path):
    model = export(traced, tmp_path / "model", **ROOM)
    with driver.session() as say:
        assert say("open", model, 2) == ""
        player = Player(CppScheduler(say))
        of_cpp, refused_by_cpp = player.play(TRACE), player.refused
    of_python, refused_by_python = play_in_python(traced, cpp, **ROOM)
    with_room = {**LIMITS, "max_num_batched_requests": 8, "max_num_batched_tokens": 300}
    expected, refused = play_in_python(traced, cpp, **with_room)
    assert not refused
    assert of_cpp == expected
    assert of_python == expected
    assert set(refused_by_cpp) == set(refused_by_python) == {"slots", "pages"}


def test_a_trace_has_the_same_tokens_with_pages_in_groups(folder, cpp, driver, tmp_path):
    # Groups of two pages, and a page that is left over.
    room = {**LIMITS, "page_size": 1, "max_num_pages": 193}
    model = export(folder, tmp_path / "model", **room)
    with driver.session() as say:
        assert say("open", model, 2) == ""
        of_cpp = Player(CppScheduler(say)).play(TRACE)
    assert of_cpp == play_in_python(folder, cpp, **room)[0]
    assert of_cpp == play_in_python(folder, cpp, **ROOM)[0]
