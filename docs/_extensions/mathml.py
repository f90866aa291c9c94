"""Formulas as MathML, which browsers show without fonts and scripts from elsewhere."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

__all__ = ["setup"]


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _visit_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _visit_block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{_block(node.astext())}</div>')
    raise nodes.SkipNode


def _block(tex: str) -> str:
    # Lines that are to be aligned need their environment, as in TeX itself.
    if r"\\" in tex or "&" in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    return str(tex2mathml(tex, as_block=True))
