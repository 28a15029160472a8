"""The one place that states the package's version."""

__version__ = "0.1.0"
