"""`python -m vonet`: the command line."""

from vonet.cli import main

main()
