"""Queues of Celery on its own Redis keys: its messages are run here, its producers stay as they are."""
