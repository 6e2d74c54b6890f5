"""Adapters that can be deployed on their own; each uses the public API of mqworker only."""
