"""A folder of tests for each room. Helpers go by their full name: `tests.rules.references`."""
