"""Tests on Ray: a package, so that its one Ray ends with the last of them."""
