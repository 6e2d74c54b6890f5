"""The work queue: the default model of a task queue, with RedisMQ's verbs beside ours."""
