"""The arithmetic that the NumPy bodies of several ops share."""
