"""A hundred clients, a third of which go away: nothing is lost or mixed up."""

import asyncio
import random
import resource
import time

import httpx
import pytest

NUM_CLIENTS, NUM_PROMPTS = 100, 24
HOW = {"temperature": 1.2, "max_tokens": 40}


@pytest.fixture(scope="module")
def expected(model):
    """What `generate` answers to each prompt, with the seed of its number."""
    how = {"temperature": 1.2, "max_new_tokens": 40}
    return [
        model.generate(f"Question {number}:", seed=number, **how)[0].text
        for number in range(NUM_PROMPTS)
    ]


async def ask(http, draw, expected, counts):
    """Ask once, whole or in pieces, or go away before the end."""
    number = draw.randrange(NUM_PROMPTS)
    body = {"prompt": f"Question {number}:", "seed": number, **HOW}
    goes_away = draw.random() < 1 / 3
    is_stream = draw.random() < 0.7
    if not is_stream:
        timeout = draw.random() * 0.05 if goes_away else 60
        try:
            done = await http.post("/v1/completions", json=body, timeout=timeout)
        except httpx.TimeoutException:
            counts["gone"] += 1
            return
        if done.status_code == 429:
            counts["busy"] += 1
            await asyncio.sleep(0.05)
            return
        assert done.status_code == 200, done.text
        assert done.json()["choices"][0]["text"] == expected[number]
        counts["whole"] += 1
        return
    text, left = "", draw.randrange(1, 4) if goes_away else 1 << 30
    async with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
        if stream.status_code == 429:
            counts["busy"] += 1
            await asyncio.sleep(0.05)
            return
        assert stream.status_code == 200
        async for line in stream.aiter_lines():
            if not line or line == "data: [DONE]":
                continue
            text += httpx.Response(200, content=line[6:]).json()["choices"][0]["text"]
            left -= 1
            if not left:
                break
    is_whole = text == expected[number]
    assert is_whole or (goes_away and expected[number].startswith(text))
    counts["whole" if is_whole else "gone"] += 1


def test_a_hundred_clients(address, model, expected, request):
    is_nightly = request.config.getoption("--nightly")
    counts = dict.fromkeys(("whole", "gone", "busy"), 0)

    def are_enough():
        return not is_nightly and counts["whole"] > 300 and counts["gone"] > 100

    async def client(seed, end):
        draw = random.Random(seed)
        limits = httpx.Limits(max_connections=1)
        how = {"base_url": address, "timeout": 60, "limits": limits, "verify": False}
        async with httpx.AsyncClient(**how) as http:
            while time.monotonic() < end and not are_enough():
                await ask(http, draw, expected, counts)

    async def all_of_them():
        end = time.monotonic() + 60
        await asyncio.gather(*(client(seed, end) for seed in range(NUM_CLIENTS)))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.run(all_of_them())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert counts["whole"] > 50, counts
    assert counts["gone"] > 5, counts
    assert grown < 200 << 10, "KiB"
    end = time.monotonic() + 10
    while model.kernel.requests:
        assert time.monotonic() < end
        time.sleep(0.01)
