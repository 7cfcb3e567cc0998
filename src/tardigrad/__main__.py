"""`python -m tardigrad`."""

from tardigrad.cli import main

main()
