"""`python -m mqworker` is `mqworker`."""

from mqworker.cli.main import main

if __name__ == "__main__":
    main()
