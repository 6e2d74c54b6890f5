"""Running a task: a delivery in, a settlement out."""
