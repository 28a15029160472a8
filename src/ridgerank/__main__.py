"""`python -m ridgerank`: the command line, where the `ridgerank` script is not on the path."""

from ridgerank.cli.main import main

if __name__ == "__main__":
    main()
