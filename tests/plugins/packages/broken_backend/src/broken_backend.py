"""A backend whose import fails, as one does whose shared library is missing."""

raise ImportError("libabacus.so.7: cannot open shared object file")
