"""The requests of a kernel: their tokens, their pages, and how these are chosen and kept."""
