"""Purposes of the slots of a program's nodes, by their kinds."""

from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.records import Node

__all__ = ["drawn_from", "matrices_of", "tables_of"]


def tables_of(node: Node) -> tuple[str, ...]:
    """Return the tensors whose rows a node looks up by numbers."""
    slots = [slot.name for slot in KINDS[node.kind].weights if slot.form == "lookup"]
    return tuple(name for slot in slots for name in node.weights.get(slot, ()))


def matrices_of(node: Node) -> dict[str, tuple[str, ...]]:
    """Return the matrices and stacks of them that a node multiplies with, by slot."""
    forms = ("matrices", "stack")
    slots = [slot.name for slot in KINDS[node.kind].weights if slot.form in forms]
    return {slot: node.weights[slot] for slot in slots if slot in node.weights}


def drawn_from(nodes: tuple[Node, ...]) -> list[str]:
    """Return the logits from which nodes draw tokens as each request asks."""
    drawing = [node for node in nodes if KINDS[node.kind].draws]
    return [node.inputs[KINDS[node.kind].inputs[0].name] for node in drawing]
