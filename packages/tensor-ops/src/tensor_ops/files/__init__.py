"""Checks of files before they are read or written, whatever they are for."""
