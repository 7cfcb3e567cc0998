"""The command line: one file per command, each a thin layer over what Python can do as well."""

from tardigrad.cli.app import main

__all__ = ["main"]
