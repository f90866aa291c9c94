"""The summary as a picture: SmolLM2 on each engine, in multiples of llama.cpp's speed."""

from decode_peers.cases import ENGINES
from decode_peers.kinds import KINDS
from decode_peers.results import Results
from decode_peers.tables import PROCESSOR
from summary_figures import LINE, RIGHT, TOP, WIDTH, bar, figure, text

__all__ = ["draw"]

MODEL, PEER = "SmolLM2 Q4_1", "llama.cpp"
CASES = {
    "decode": ("decode", "#08519c"),
    "prompt": ("prompt of 512", "#6baed6"),
    "batch 8": ("8 sequences", "#e6550d"),
}
THREADS = 2
# Where the plotted area begins: the longest name of an engine is left of it.
LEFT = 190
MOST_TICKS = 9


def draw(results: Results) -> str:
    """Return the drawing as SVG."""
    speeds = {
        engine.name: found
        for engine in ENGINES.values()
        if engine.threads == THREADS
        and engine.name not in PROCESSOR
        and (found := _speeds(results, engine.name))
    }
    engines = sorted(speeds, key=lambda name: -speeds[name].get("decode", 0))
    largest = max((max(found.values()) for found in speeds.values()), default=1.0)
    scale = (WIDTH - RIGHT - LEFT) / largest
    lines, y = [], TOP
    for engine in engines:
        found = speeds[engine]
        middle = y + LINE * len(found) / 2 + 4
        lines.append(text(LEFT - 10, middle, engine.replace(" Runtime", ""), anchor="end"))
        for case, value in found.items():
            lines.append(bar(LEFT, y, value * scale, LINE - 2, CASES[case][1]))
            lines.append(text(LEFT + value * scale + 6, y + 13, f"{value:.1f}", size=14))
            y += LINE
        y += 12
    step = next((each for each in (1, 2, 5, 10) if largest / each < MOST_TICKS), 20)
    ticks = {LEFT + place * scale: f"{place}" for place in range(0, int(largest) + 1, step)}
    details = [
        f"SmolLM2-135M, Q4_1, {THREADS} threads. Longer is faster; int8: activations in one term.",
        f"Median of ratios, the engines taking turns, on {KINDS[results.kind].title}.",
    ]
    title = "Tokens per second, in multiples of llama.cpp's"
    return figure(title, details, list(CASES.values()), ticks, y, lines, left=LEFT)


def _speeds(results: Results, engine: str) -> dict[str, float]:
    found = {case: results.times_as_fast(MODEL, case, engine, PEER) for case in CASES}
    return {case: ratio.value for case, ratio in found.items() if ratio}
