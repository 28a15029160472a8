"""The same work on many machines: Ray runs what `indexing`, `calibration` and `serving` do here."""
