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

# The inputs, weights and attributes of each kind, which may have biases too.
_SLOTS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "linear": ({"x", "residual"}, {"weight"}, set()),  # without a residual it is no combined one
    "rms_norm_linear": ({"x"}, {"norm", "weight"}, {"eps"}),
    "silu_mul_linear_with_residual": ({"x", "residual"}, {"weight"}, set()),
}


def nodes_of(node: Node, *taken: Container[str]) -> list[Node]:
    """Return the nodes that one stands for; the last has its name and its output.

    Parameters
    ----------
    node : Node
        With all inputs of its kind; a weight that it lacks is missing in what is returned.
    *taken : container of str
        The names that values between the nodes must not have.
    """
    if node.kind not in _SLOTS or (node.kind == "linear" and "residual" not in node.inputs):
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
        x = add("rms_norm", "norm", x, norm, node.attributes)
        return [
            *nodes,
            replace(node, kind="linear", inputs={"x": x}, weights=weights, attributes={}),
        ]
    if node.kind == "silu_mul_linear_with_residual":
        x = add("silu_mul", "hidden", x, {}, {})
    product = add("linear", "product", x, weights, {})
    inputs = {"a": product, "b": node.inputs["residual"]}
    return [*nodes, replace(node, kind="add", inputs=inputs, weights={}, attributes={})]


def from_version_1(program: Parts) -> Parts:
    """Return the parts of a program of version 1 as those of the same program today.

    A node that has not the form of its kind stays as it is, for the rules of programs to report.
    """
    values = {TOKENS.name: TOKENS.value, **program.values}
    made: dict[str, Value] = {}
    taken = {*values, *(node.name for node in program.nodes)}

    nodes: list[Node] = []
    for node in program.nodes:
        if not _has_form(node, values):
            nodes.append(node)
            continue
        x, y = values[node.inputs["x"]], values[node.outputs["output"]]
        columns = {"rms_norm": x.columns, "silu_mul": x.columns // 2, "linear": y.columns}
        *inner, last = nodes_of(node, taken, made)
        made |= {each.name: Value(x.rows, columns[each.kind], "float32") for each in inner}
        nodes += [*inner, last]
    return replace(program, values={**program.values, **made}, nodes=tuple(nodes))


def _has_form(node: Node, values: Mapping[str, Value]) -> bool:
    """Return whether a node is a combined one with all that it needs."""
    given = set(node.inputs), set(node.weights) - {"bias"}, set(node.attributes)
    return (
        _SLOTS.get(node.kind) == given
        and set(node.outputs) == {"output"}
        and values.keys() >= {node.inputs["x"], node.outputs["output"]}
    )
