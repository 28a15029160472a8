"""The server on many machines."""
