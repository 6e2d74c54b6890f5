"""The command line: `main` reads the arguments, each command has its own file and is imported when called."""
