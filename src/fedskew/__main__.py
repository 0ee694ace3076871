"""`python -m fedskew` is the command line."""

from fedskew.cli import main

if __name__ == "__main__":
    main()
