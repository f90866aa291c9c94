"""How ranks divide a program: which parts of it, and what each rank has of them."""
