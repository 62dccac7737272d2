"""`python -m ddprof`: the command line, where its script is not on the PATH."""

from ddprof.cli.main import main

main()
