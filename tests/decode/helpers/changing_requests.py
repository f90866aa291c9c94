"""Requests that join a kernel as others leave, and one that is alone."""

import numpy as np


def answers(kernel, requests, slots, draw=None, leaving=0.03):
    """Return the tokens and last logits by index, of requests of a prompt and a number of tokens.

    Of those that `draw` is given for, some leave before they have as many tokens.
    """
    waiting, running, found = list(enumerate(requests)), {}, {}
    while waiting or running:
        while waiting and len(running) < slots:
            index, (prompt, count) = waiting.pop()
            running[kernel.add_request(prompt, ignore_eos=True)] = index, count
        kernel()
        for request, (index, count) in list(running.items()):
            is_done = len(kernel.tokens(request)) >= count
            if is_done:
                logits = np.array(kernel.logits(request))
                found[index] = kernel.tokens(request)[:count], logits
            if is_done or (draw is not None and draw.random() < leaving):
                kernel.remove(request)
                del running[request]
    return found


def answer(kernel, prompt, count):
    """Return the tokens of a request that is alone, and its last logits."""
    kernel.reset()
    return answers(kernel, [(prompt, count)], slots=1)[0]


def assert_alone_the_same(kernel, requests, found):
    """Check that each request that has an answer has its bits alone."""
    for index, (tokens, logits) in found.items():
        alone, right = answer(kernel, *requests[index])
        assert tokens == alone
        assert np.array_equal(logits, right)
