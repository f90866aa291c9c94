"""Compiled code of a kernel: its instructions, as basic blocks, and the ways round a loop.

Read from the text that NVIDIA's nvdisasm prints of a cubin. Nothing here knows a certain kernel.
"""

import heapq
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

__all__ = [
    "Block",
    "Function",
    "Instruction",
    "Loop",
    "functions",
    "loops",
    "reachable",
    "shortest_round",
]

BYTES = 16  # of an instruction


@dataclass(frozen=True)
class Instruction:
    """One instruction: its predicate, its name and its operands."""

    predicate: str
    name: str  # such as ``LDS.128``
    operands: str

    @property
    def opcode(self) -> str:
        """The name up to its first point."""
        return self.name.partition(".")[0]

    @property
    def target(self) -> str | None:
        """The label that it may jump to, as some calls do that never return."""
        found = re.search(r"`\((\.L\w+)\)", self.operands)
        return found[1] if found and self.opcode in JUMPING else None

    @property
    def may_go_on(self) -> bool:
        """Whether the next instruction may be the one behind it."""
        if self.opcode == "CALL":
            return self.target is None or self.predicate != ""
        is_conditional = re.match(r"!?U?P\d|~?UR", self.operands) or "DIV" in self.name
        return self.opcode not in LEAVING or self.predicate != "" or bool(is_conditional)


LEAVING = {"BRA", "BRX", "JMP", "EXIT", "RET", "KILL"}
JUMPING = LEAVING | {"CALL"}


@dataclass
class Block:
    """Instructions that run one after another, and the blocks that may be next."""

    function: str = ""  # the one that is called, or "" in the kernel itself
    instructions: list[Instruction] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Function:
    """A kernel, with the functions that the compiler keeps behind it for its calls."""

    name: str
    blocks: tuple[Block, ...]

    @property
    def instructions(self) -> Iterator[Instruction]:
        """All of them, in the order of their addresses."""
        for block in self.blocks:
            yield from block.instructions

    @property
    def bytes(self) -> int:
        """The size of its code."""
        return BYTES * sum(1 for _ in self.instructions)


@dataclass(frozen=True)
class Loop:
    """All blocks from which a loop's head is reached again; the latches jump there."""

    head: int
    latches: frozenset[int]
    blocks: frozenset[int]


SECTION = re.compile(r"^\s*\.section\s+([^,\s]+),.*$", re.MULTILINE)
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z]\w*(?:\.\w+)*)\s*([^;]*);")
LABEL = re.compile(r"^(\.\S+):")
CALLED = re.compile(r"^\$\S*\$(\S+):")


def functions(text: str) -> list[Function]:
    """Return the functions in what ``nvdisasm`` prints of a cubin."""
    parts = SECTION.split(text)
    sections = zip(parts[1::2], parts[2::2], strict=True)
    prefix = ".text."
    return [
        _function(name.removeprefix(prefix), body)
        for name, body in sections
        if name.startswith(prefix)
    ]


def _function(name: str, body: str) -> Function:
    blocks, starts = [Block()], {}
    for line in body.splitlines():
        if called := CALLED.match(line):
            blocks.append(Block(called[1]))
        elif label := LABEL.match(line):
            if blocks[-1].instructions:
                blocks.append(Block(blocks[-1].function))
            starts[label[1]] = len(blocks) - 1
        elif found := INSTRUCTION.search(line):
            one = Instruction(found[1] or "", found[2], found[3].strip())
            blocks[-1].instructions.append(one)
            if one.opcode in JUMPING:
                blocks.append(Block(blocks[-1].function))
    for number, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        if last is not None and last.target is not None:
            block.successors.append(starts[last.target])
        if (last is None or last.may_go_on) and number + 1 < len(blocks):
            block.successors.append(number + 1)
    return Function(name, tuple(blocks))


def loops(function: Function) -> list[Loop]:
    """Return the loops, each with a head that all ways into it pass."""
    before: list[list[int]] = [[] for _ in function.blocks]
    for number, block in enumerate(function.blocks):
        for successor in block.successors:
            before[successor].append(number)
    names = ["?", *(block.function for block in function.blocks)]
    entries = {n for n, name in enumerate(names[1:]) if name != names[n]}
    latches: dict[int, set[int]] = {}
    for number, block in enumerate(function.blocks):
        for head in block.successors:
            if head <= number and not entries & _reaching(before, number, head) - {head}:
                latches.setdefault(head, set()).add(number)
    return [
        Loop(head, frozenset(back), frozenset().union(*(_reaching(before, n, head) for n in back)))
        for head, back in latches.items()
    ]


def _reaching(before: list[list[int]], end: int, head: int) -> frozenset[int]:
    """Return the head and the blocks from which the end is reached without passing it."""
    found, left = {head}, [end]
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += before[number]
    return frozenset(found)


def reachable(function: Function, loop: Loop, starts: Collection[int]) -> set[int]:
    """Return some blocks of a loop, and what can run behind them before its head does."""
    found, left = set(starts), [*starts]
    while left:
        for each in function.blocks[left.pop()].successors:
            if each in loop.blocks - found - {loop.head}:
                found.add(each)
                left.append(each)
    return found


def shortest_round(function: Function, loop: Loop, needed: Collection[int]) -> list[Instruction]:
    """Return the fewest instructions of a way round a loop through all blocks that are needed.

    Of an inner loop it has one round at most. ValueError if no way passes all.
    """
    way, left = [loop.head], set(needed) - {loop.head}
    while left:
        way += _shortest(function, loop, way[-1], left)
        left.remove(way[-1])
    way += _shortest(function, loop, way[-1], loop.latches)
    return [one for number in way for one in function.blocks[number].instructions]


def _shortest(function: Function, loop: Loop, start: int, ends: Collection[int]) -> list[int]:
    """Return the blocks behind one, up to the nearest of several."""
    queue: list[tuple[int, list[int]]] = [(0, [start])]
    seen = set()
    while queue:
        length, way = heapq.heappop(queue)
        if way[-1] in ends:
            return way[1:]
        if way[-1] in seen:
            continue
        seen.add(way[-1])
        for each in function.blocks[way[-1]].successors:
            if each in loop.blocks and each != loop.head:
                size = len(function.blocks[each].instructions)
                heapq.heappush(queue, (length + size, [*way, each]))
    raise ValueError(f"{function.name}: no way round the loop passes all that is needed")
