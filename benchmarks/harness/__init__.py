"""What benchmarks have in common that compare libraries, each in a process of its own."""
