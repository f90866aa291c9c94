"""The parts of tools/portable.py."""
