"""The declaration of kinds of nodes, and the sizes and bounds that kinds are declared with."""
