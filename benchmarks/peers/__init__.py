"""The contestants: one adapter file each, run by the interpreter of its own environment."""
