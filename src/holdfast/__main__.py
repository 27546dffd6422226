"""`python -m holdfast` is the command line."""

from holdfast.cli import program

if __name__ == "__main__":
    program()
