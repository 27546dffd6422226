"""`python -m heatproof` is the command line."""

from heatproof.cli import program

if __name__ == "__main__":
    program()
