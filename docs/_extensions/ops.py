"""The directive ``.. ops:: MODULE``: the documentation of every op that a module has."""

from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from tensor_ops.ops import OPS

__all__ = ["names", "setup"]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("ops", Ops)
    return {"parallel_read_safe": True}


def names(module: str) -> list[str]:
    """Return the names of the ops that a module has, from the table of tensor_ops."""
    return [name for name in OPS if hasattr(import_module(module), name)]


class Ops(SphinxDirective):  # type: ignore[misc]  # which has no types here
    """Lists the ops of a module, each with its signature and docstring."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (module,) = self.arguments
        lines = [f".. autofunction:: {module}.{name}" for name in names(module)]
        found: list[nodes.Node] = self.parse_text_to_nodes("\n".join(lines))
        return found
