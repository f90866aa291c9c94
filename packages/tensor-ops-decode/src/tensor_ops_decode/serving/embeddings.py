"""``/v1/embeddings``: vectors of texts, from a model that is opened with embeddings."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.serving.errors import RequestError
from tensor_ops_decode.serving.generation import ServedModel, in_thread
from tensor_ops_decode.text.arguments import checked_prompt, listed_prompts

if TYPE_CHECKING:
    from tensor_ops_decode.serving.protocol import EmbeddingRequest

__all__ = ["embeddings"]

# How many texts are computed between steps of answers, which wait meanwhile.
_TEXTS_AT_ONCE = 8
_MOST_TEXTS = 2048  # as of OpenAI


async def embeddings(served: ServedModel, request: EmbeddingRequest) -> dict[str, Any]:
    """Return the response to a request."""
    served.check_name(request.model)
    given: Any = request.input
    texts: list[Any] = listed_prompts(given)
    if not 0 < len(texts) <= _MOST_TEXTS:
        raise RequestError(
            f"input must have 1 to {_MOST_TEXTS} texts, got {len(texts)}", param="input"
        )
    model = served.model

    def count() -> int:
        encode, longest = model.tokenizer.encode, model.kernel.program.limits.longest
        checked = [checked_prompt(f"text {number}", each) for number, each in enumerate(texts)]
        lengths = [len(encode(each) if isinstance(each, str) else each) for each in checked]
        for number, length in enumerate(lengths):
            if length > longest:  # known here, without the time of the thread that computes answers
                raise ValueError(
                    f"text {number}: a text of {length} tokens is more than there is room for, "
                    f"{longest}"
                )
        return sum(lengths)

    num_tokens = await in_thread(count)
    rows: list[Any] = []
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        group = texts[first : first + _TEXTS_AT_ONCE]
        try:
            rows += list(await served.thread.call(partial(model.embed, group)))
        except (ValueError, TypeError) as error:
            raise RequestError(str(error), param="input") from error
    if request.dimensions not in (None, len(rows[0])):
        raise RequestError(
            f"dimensions must be {len(rows[0])}, which the model has, got {request.dimensions}",
            param="dimensions",
        )
    is_text = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode()
            if is_text
            else row.tolist(),
        }
        for index, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}
