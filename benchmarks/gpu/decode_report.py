"""The table of decode steps on the page about a GPU, beside what was predicted."""

import statistics
from collections.abc import Sequence
from typing import Any

from gpu.goals import OURS
from gpu.parts import DECODE, LLAMA_CPP, TRANSFORMERS

__all__ = ["HEAD", "rows"]

HEAD = (
    *("model", "weights", "requests", "positions", "blocks", "a step", "tokens/s"),
    *("of the copy", "of the prediction", LLAMA_CPP, TRANSFORMERS),
)
NOTHING = "—"


def rows(figures: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row of the table for each figure of ours."""
    own, found = [each for each in figures if each["way"] == DECODE], []
    for figure in own:
        times = figure.get("us", {}).get(OURS)
        if times is None:
            continue
        requests, positions = figure["shape"]
        us, copied = statistics.median(times), figure["copied"]
        meant = figure.get("predicted", {}).get("step")
        found.append(
            (
                *(figure["model"], figure["variant"], str(requests), f"{positions:,}"),
                *(str(figure["blocks"] or "all"), f"{us * 1e-3:.3g} ms"),
                f"{1e6 * requests / us:.0f}",
                f"{1e6 * figure['bytes'] / us / copied:.2f}" if copied else NOTHING,
                f"{us / meant:.2f}" if meant else NOTHING,
                *(_tokens(own, figure, name) for name in (LLAMA_CPP, TRANSFORMERS)),
            )
        )
    return found


def _tokens(figures: Sequence[dict[str, Any]], ours: dict[str, Any], name: str) -> str:
    """Return the tokens per second of another engine in the same case."""
    for each in figures:
        is_same = all(each[key] == ours[key] for key in ("model", "variant", "shape"))
        if is_same and not ours["blocks"] and (times := each.get("us", {}).get(name)):
            return f"{ours['shape'][0] / (1e-6 * statistics.median(times)):.0f} tokens/s"
    return NOTHING
