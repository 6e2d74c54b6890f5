"""What users touch: the app, its tasks, jobs, workflows and schedules."""
