"""Models of transformers whose decode step is one native call."""
