"""RidgeRank: visual document reranking by stored page prefixes, one ridge readout and closed-form fusion."""

from ridgerank.version import __version__

__all__ = ["__version__"]
