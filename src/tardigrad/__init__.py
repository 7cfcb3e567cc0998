"""tardigrad."""
