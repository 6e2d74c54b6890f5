"""Contributions: mqworker together with other tools, each with an extra of its own."""
