"""Events: what the application publishes, and the tasks that subscribe to it."""
