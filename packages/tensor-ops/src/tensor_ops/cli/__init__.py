"""The commands of ``tensor-ops``, one file each.

A command's module has `add`, which makes its parser, and `run`, which takes the parsed arguments
and returns the exit status. What only a command needs is imported when it runs.
"""
