"""How a program becomes an executable: the backend, its memory, its tensors."""
