"""Several ranks beside one process: what they do, what it costs, and what it would elsewhere."""
