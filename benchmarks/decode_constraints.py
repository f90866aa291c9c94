"""What a constraint costs a token: answers with one and without, in turn.

The answers are greedy, of one request. A step that a constraint has no part in is one of a row of
steps; with a constraint each step ends in Python, where the tokens that must follow are found too.

    python benchmarks/decode_constraints.py MODEL --json RECORD.json
"""

import statistics
from pathlib import Path
from typing import Any

import tensor_ops_decode
from decode_blocks import run, setting_of

NEW = 128
PROMPTS = {
    "a person": "Describe a person in JSON.",
    "a list": "List some animals in JSON.",
    "any text": "Describe a city.",
}
PERSON = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string"},
        "last_name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "occupation": {"enum": ["teacher", "doctor", "farmer"]},
        "biography": {"type": "string"},
    },
    "required": ["first_name", "last_name", "age", "occupation", "biography"],
    "additionalProperties": False,
}
ANIMAL = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "legs": {"type": "integer"}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "a person": {"json_schema": PERSON},
    "a list": {"json_schema": {"type": "array", "items": ANIMAL, "minItems": 20}},
    "any text": {"regex": "(?s:.*)"},
}


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Return seconds for each token after the first, with a constraint and without."""
    from threads import facts

    seconds: dict[str, dict[str, list[float]]] = {
        name: {"without": [], "with": []} for name in CONSTRAINTS
    }
    with tensor_ops_decode.load(path, max_seq_length=512, max_num_batched_requests=1) as model:

        def once(name: str, **constraint: Any) -> float:
            prompt = model.chat_prompt([{"role": "user", "content": PROMPTS[name]}])
            how = {"max_new_tokens": NEW, "ignore_eos": not constraint}
            (answer,) = model.generate([prompt], **how, **constraint)
            return answer.decode_seconds / (len(answer.tokens) - 1)

        for number in range(rounds + 1):
            for name, constraint in CONSTRAINTS.items():
                pair = {"without": once(name), "with": once(name, **constraint)}
                if number:  # the first warms up
                    for way, value in pair.items():
                        seconds[name][way].append(value)
    how = {"rounds": rounds, "new": NEW}
    return facts() | {"model": path.stem, "how": how, "seconds": seconds}


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    head = "| constraint | ms a token without | ms with | ratio | quartiles |"
    lines = [head, "|---|---|---|---|---|"]
    for name, of in record["seconds"].items():
        ratios = [b / a for a, b in zip(of["without"], of["with"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        without, with_one = (1000 * statistics.median(of[way]) for way in ("without", "with"))
        lines.append(
            f"| {name} | {without:.2f} | {with_one:.2f} | {middle:.2f} | {low:.2f} to {high:.2f} |"
        )
    return {"constraints-setting": setting_of(record), "constraints": "\n".join(lines)}


if __name__ == "__main__":
    run(__doc__, measure, blocks)
