"""What tests of commands use, for experiments that are run by them."""

from tests.cli.conftest import cli

__all__ = ["cli"]
