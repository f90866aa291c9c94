"""A model that the tests of a file share, opened once for each backend and set of options."""

import contextlib

import tensor_ops_decode

__all__ = ["opened_models"]


@contextlib.contextmanager
def opened_models(folder, **options):
    """Give a function that returns the model of a folder on a backend, with more options."""
    with contextlib.ExitStack() as stack:
        opened = {}

        def model(backend, **more):
            key = backend, *more.items()
            if key not in opened:
                made = tensor_ops_decode.load(folder, backend, **options, **more)
                opened[key] = stack.enter_context(made)
            return opened[key]

        yield model
