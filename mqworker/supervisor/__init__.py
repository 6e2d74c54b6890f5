"""Starts, wires, watches, restarts and stops the actors."""
