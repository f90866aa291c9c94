"""What a kind of node is, and the sizes and bounds that kinds are declared with."""
