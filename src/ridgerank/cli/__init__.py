"""Thin commands: data on stdout, messages on stderr; the library does the work."""
