"""The same work on many machines: Ray runs `indexing`, `calibration` and `serving` there."""
