"""What a run leaves behind: its folder."""
