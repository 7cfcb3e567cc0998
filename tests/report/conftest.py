"""What tests of commands use, for reports that are written by them."""

from tests.cli.conftest import cli

__all__ = ["cli"]
