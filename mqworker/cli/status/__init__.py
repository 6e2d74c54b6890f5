"""The command `mqworker status`."""
