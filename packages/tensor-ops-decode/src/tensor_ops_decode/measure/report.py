"""The figures of ``tensor-ops bench decode`` as text and as a picture."""

from typing import Any

from tensor_ops.extension import format_time
from tensor_ops_decode.measure.figures import DecodeFigures, KindTime, Stage

__all__ = ["draw", "format_figures"]

_BAR = 20
_WAITING, _BETWEEN = "waiting for threads", "Python between steps"


def format_figures(figures: DecodeFigures) -> str:
    """Return the figures as lines of text."""
    prompt, decode = figures.prompt, figures.decode
    read = figures.weights + figures.caches
    lines = [
        f"decode  {_rate(decode.tokens_per_second)} tokens per second, {decode.tokens} tokens "
        f"after {prompt.tokens}",
        f"prompt  {_rate(prompt.tokens_per_second)} tokens per second, {prompt.tokens} tokens",
        f"bytes   {read / 1e6:.1f} MB a token: {figures.weights / 1e6:.1f} MB of weights, "
        f"{figures.caches / 1e6:.1f} MB of caches",
        f"memory  {figures.bandwidth / 1e9:.1f} GB/s{_readers(figures.threads)}; decoding reaches "
        f"{figures.fraction:.0%} of it",
        "",
        *_table(decode, prompt),
        "",
        _sentence("Decoding", decode),
        _sentence("Reading the prompt", prompt),
    ]
    return "\n".join(lines)


def draw(figures: DecodeFigures, title: str, figure_class: Any) -> Any:
    """Return a figure of the time of a token, by kind of node.

    `figure_class` is matplotlib's; pyplot, which would look for a screen, is not needed.
    """
    stages = {"decode": figures.decode, "prompt": figures.prompt}
    names = [name for name, _ in _shares(figures.decode)]
    figure = figure_class(figsize=(9, 1.8 + 0.4 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for index, (label, stage) in enumerate(stages.items()):
        shares = dict(_shares(stage))
        places = [place + 0.4 * index - 0.2 for place in range(len(names))]
        bars = axes.barh(places, [100 * shares[name] for name in names], 0.4, label=label)
        axes.bar_label(bars, fmt="%.1f%%", padding=3, fontsize=7)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("share of the time of a token [%]")
    axes.set_title(
        f"{title}: {_rate(figures.decode.tokens_per_second)} tokens per second, "
        f"{figures.fraction:.0%} of {figures.bandwidth / 1e9:.1f} GB/s",
        fontsize=10,
    )
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _readers(threads: float) -> str:
    """Return who has read; devices measure their workers together, as one."""
    return f", read by the same threads ({threads:.3g} on average)" if threads > 1 else ""


def _table(decode: Stage, prompt: Stage) -> list[str]:
    """Return a line for each kind of node, and for what is no node's time."""
    of_prompt = dict(_shares(prompt))
    kinds = {kind.kind: kind for kind in decode.kinds}
    width = max(map(len, [*kinds, _BETWEEN]))
    lines = [f"{'':{width}} nodes      time  share {'':{_BAR}}     MB   GB/s  prompt"]
    for name, share in _shares(decode):
        nodes, rate = _reading(kinds.get(name))
        time, bar = format_time(share * decode.seconds), "#" * round(_BAR * share)
        lines.append(
            f"{name:{width}} {nodes:>5} {time:>9} {share:6.1%} {bar:{_BAR}} {rate:>13} "
            f"{of_prompt[name]:7.1%}"
        )
    return lines


def _reading(kind: KindTime | None) -> tuple[str, str]:
    """Return the columns that only kinds of nodes have; those that read little have no rate."""
    if kind is None:
        return "", ""
    if kind.bytes < 1e5:
        return str(kind.nodes), ""
    return str(kind.nodes), f"{kind.bytes / 1e6:6.1f} {kind.bytes / kind.seconds / 1e9:6.1f}"


def _shares(stage: Stage) -> list[tuple[str, float]]:
    """Return the share of each kind of node, the largest first, then of waiting and of Python."""
    seconds = {kind.kind: kind.seconds for kind in stage.kinds}
    seconds |= {name: stage.parts[name] for name in (_WAITING, _BETWEEN)}
    return [(name, each / stage.seconds) for name, each in seconds.items()]


def _sentence(what: str, stage: Stage) -> str:
    """Return what limits a stage, and the figures that show it."""
    reading, arithmetic, waiting, between = map(format_time, stage.parts.values())
    return (
        f"{what} is limited by {stage.limit}. Of {format_time(stage.seconds)} a token:\n"
        f"  {reading} to read its bytes at that bandwidth, {arithmetic} of arithmetic beyond it,\n"
        f"  {waiting} waiting for threads, {between} of Python between steps"
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
