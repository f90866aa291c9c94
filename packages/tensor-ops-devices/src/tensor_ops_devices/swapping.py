"""Whether tensor_ops_torch is there, which swaps the modules of a model for ops."""

from importlib import import_module

__all__ = ["why_no_swapping"]


def why_no_swapping() -> str | None:
    """Import tensor_ops_torch and return why that fails, None if it works."""
    try:
        import_module("tensor_ops_torch.modules")
    except ModuleNotFoundError as error:
        return (
            f"tensor_ops_torch, which swaps modules, is not installed ({error}); install it from a "
            "clone: pip install ./packages/tensor-ops-torch"
        )
    return None
