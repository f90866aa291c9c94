"""A model's decode step as one native call, for several requests at a time."""
