"""Text generation with a model's whole decode step in one native call."""

__version__ = "0.1.0"

__all__ = ["__version__"]
