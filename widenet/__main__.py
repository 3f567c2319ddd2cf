"""`python -m widenet`."""

from widenet.cli import main

if __name__ == "__main__":
    main()
