"""How much guessed tokens gain: decoding of texts that repeat themselves, and of one that does not.

The same model is open once for each number of guesses. They take turns, one answer each.

    python benchmarks/decode_speculation.py MODEL.gguf --json RECORD.json
"""

import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from decode_blocks import run, setting_of

GUESSES = (0, 2, 4, 8)
NEW = 128
LIST = "apple, banana, cherry, date, elderberry, fig, grape, honeydew"
CODE = """def total(prices, tax):
    result = 0
    for price in prices:
        result += price
    return result * (1 + tax)
"""
MESSAGES = {
    "a list to repeat": f"Repeat this list five times: {LIST}",
    "code to change": f"Rename the argument prices to amounts:\n```python\n{CODE}```",
    "a story": "Write a short story about a lighthouse keeper.",
}


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Return tokens per second of each text and number of guesses, round by round."""
    import tensor_ops_decode
    from threads import facts

    seconds: dict[str, dict[str, list[float]]] = {text: {} for text in MESSAGES}
    accepted: dict[str, dict[str, int]] = {text: {} for text in MESSAGES}
    with ExitStack() as stack:
        models = [
            stack.enter_context(
                tensor_ops_decode.load(
                    path,
                    "cpp",
                    progress=lambda done, size: None,  # packs all weights
                    max_seq_length=512,
                    num_speculative_tokens=count,
                )
            )
            for count in GUESSES
        ]
        for text, message in MESSAGES.items():
            for _ in range(rounds + 1):
                expected = None
                for count, model in zip(GUESSES, models, strict=True):
                    messages = [{"role": "user", "content": message}]
                    answer = model.chat(messages, max_new_tokens=NEW, ignore_eos=True)
                    expected = expected or answer.tokens
                    assert answer.tokens == expected
                    seconds[text].setdefault(str(count), []).append(answer.decode_seconds)
                    accepted[text][str(count)] = answer.accepted_tokens
    rates = {
        text: {count: [(NEW - 1) / each for each in times[1:]] for count, times in counts.items()}
        for text, counts in seconds.items()  # the first warms up
    }
    how = {"new": NEW, "rounds": rounds}
    return facts() | {
        "model": path.name,
        "how": how,
        "messages": MESSAGES,
        "tokens_per_second": rates,
        "accepted": accepted,
    }


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    lines = [
        "| answer | guesses a step | guessed tokens | tokens per second | beside 0 | quartiles |",
        "|---|---|---|---|---|---|",
    ]
    for text, rates in record["tokens_per_second"].items():
        for count, values in rates.items():
            ratios = [own / base for own, base in zip(values, rates["0"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            guessed = f"{record['accepted'][text][count]} of {record['how']['new']}"
            lines.append(
                f"| {text} | {count} | {guessed} | {statistics.median(values):,.0f} "
                f"| {middle:.2f} | {low:.2f} to {high:.2f} |"
            )
    return {"speculation-setting": setting_of(record), "speculation-speed": "\n".join(lines)}


if __name__ == "__main__":
    run(__doc__, measure, blocks)
