"""Nodes that stand for several: those of programs of version 1, and layers that are added as one.

Version 1 had kinds for a product with what is before and behind it, which executors now find
themselves.
"""

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from tensor_ops_decode.program.node_rules import TOKENS
from tensor_ops_decode.program.records import Node, Parts, Value, new_name

__all__ = ["from_version_1", "nodes_of"]

# By kind. Without a residual, `linear` is one node.
_INPUTS = {
    "linear": {"x", "residual"},
    "rms_norm_linear": {"x"},
    "silu_mul_linear_with_residual": {"x", "residual"},
}


def nodes_of(node: Node, *taken: Container[str]) -> list[Node]:
    """Return the nodes that one of any kind stands for; the last has its name and its output.

    What its slots have too little or too much, those of the nodes have. Values between the nodes
    have none of the names `taken`.
    """
    if _INPUTS.get(node.kind) != set(node.inputs):
        return [node]
    nodes: list[Node] = []

    def add(
        kind: str, part: str, x: str, weights: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> str:
        name = new_name(f"{node.outputs['output']}.{part}", *taken)
        nodes.append(Node(kind, name, {"x": x}, weights, {"output": name}, attributes))
        return name

    x, weights = node.inputs["x"], dict(node.weights)
    if node.kind == "rms_norm_linear":
        norm = {"weight": weights.pop("norm")} if "norm" in weights else {}
        inputs = {"x": add("rms_norm", "norm", x, norm, node.attributes)}
        return [*nodes, replace(node, kind="linear", inputs=inputs, weights=weights, attributes={})]
    if node.kind == "silu_mul_linear_with_residual":
        x = add("silu_mul", "hidden", x, {}, {})
    inputs = {"a": add("linear", "product", x, weights, {}), "b": node.inputs["residual"]}
    return [*nodes, replace(node, kind="add", inputs=inputs, weights={})]


def from_version_1(program: Parts) -> Parts:
    """Return the parts of a program of version 1 as those of the same program today."""
    values: dict[Any, Value] = dict(program.values)
    taken, nodes = {node.name for node in program.nodes}, list[Node]()
    for node in program.nodes:
        x, of_output = node.inputs.get("x"), values.get(node.outputs.get("output"))
        of_x = TOKENS.value if x == TOKENS.name else values.get(x)
        if of_x is None or of_output is None:  # which the rules of programs report
            nodes.append(node)
            continue
        columns = {"rms_norm": of_x.columns, "silu_mul": of_x.columns // 2}
        *inner, last = nodes_of(node, taken, values)
        for each in inner:
            size = columns.get(each.kind, of_output.columns)
            values[each.name] = Value(of_x.rows, size, "float32")
        nodes += [*inner, last]
    return replace(program, values=values, nodes=tuple(nodes))
