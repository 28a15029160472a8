"""Fits the readout and the weight to one store and one retriever, without labels (paper §3, §B.3 to §B.6)."""
