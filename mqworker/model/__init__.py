"""Values and pure decisions: no process, no Redis, no clock of its own."""
