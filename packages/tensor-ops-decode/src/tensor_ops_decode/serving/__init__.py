"""A model behind HTTP: what OpenAI's clients ask for, answered by one kernel."""
