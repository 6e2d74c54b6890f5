"""`python -m mqworker` is the `mqworker` command."""

from mqworker.cli.entry import main

if __name__ == "__main__":
    main()
