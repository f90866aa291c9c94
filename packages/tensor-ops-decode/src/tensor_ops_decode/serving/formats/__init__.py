"""How models write calls of tools and reasoning, found by their chat templates."""
