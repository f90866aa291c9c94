"""Text from a model: prompts in, answers and conversations out."""
