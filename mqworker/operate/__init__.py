"""What people do with a running system: look at it, find jobs, act on them. For commands and the console."""
