"""Page prefixes on disk, in int8: written once, read at every request."""
