"""Queries in, rankings out: the store, the readout and the fusion weight joined."""
