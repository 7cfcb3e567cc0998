"""The one place that says which version this is; the package's metadata is read from here."""

__version__ = "0.2.0.dev0"
