"""Thin commands: stdout is data, stderr is talk, the work is the library's."""
