"""The worker: the process that runs task code."""
