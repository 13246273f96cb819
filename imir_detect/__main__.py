"""`python -m imir_detect` is the command line."""

from imir_detect.cli import main

main()
