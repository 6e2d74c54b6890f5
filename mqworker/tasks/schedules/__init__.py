"""Schedules: tasks that are enqueued by a cron line or at an interval."""
