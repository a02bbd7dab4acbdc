"""The version, which also the lowest rooms need: they cannot import the package itself."""

__all__ = ["__version__"]

__version__ = "0.1.0"
