"""The common part of benchmarks that compare libraries, each in a process of its own."""
