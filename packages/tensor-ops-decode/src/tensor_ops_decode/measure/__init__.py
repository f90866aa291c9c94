"""How fast a model decodes, and what limits it."""
