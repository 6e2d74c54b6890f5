"""The pytest plugin for users: tasks run in memory under a clock the test moves."""
