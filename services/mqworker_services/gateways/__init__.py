"""Gateways: each speaks a foreign protocol outwards and mqworker's calls inwards."""
