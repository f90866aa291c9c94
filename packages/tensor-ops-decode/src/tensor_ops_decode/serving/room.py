"""Whether there is room for a step: positions of each request, and pages of the caches.

Tested by packages/tensor-ops-decode/tests/kernel/test_requests.py.
"""

from collections.abc import Sequence

from tensor_ops_decode.errors import CapacityError
from tensor_ops_decode.program import Limits
from tensor_ops_decode.serving.kv_cache import PageTable
from tensor_ops_decode.serving.request import StepPart

__all__ = ["check_room"]


def check_room(plan: Sequence[StepPart], limits: Limits, pages: PageTable) -> None:
    """Raise a CapacityError unless there is room for a step."""
    lengths = {part.request.slot: part.length for part in plan}
    full = pages.first_without(lengths)
    for request, _, _ in plan:
        number = request.number
        if lengths[request.slot] > limits.max_seq_length:
            raise CapacityError(
                f"request {number} has come to max_seq_length, {limits.max_seq_length} "
                "tokens; remove() it, or make a kernel for longer sequences",
                number,
            )
        if request.slot == full:
            raise CapacityError(
                f"request {number} needs another page of {limits.page_size} tokens, and the "
                f"{limits.num_pages} pages are in use; remove() a request, or make a kernel "
                "with a larger max_num_pages",
                number,
            )
