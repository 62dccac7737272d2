"""Entry point of `python -m ddprof`, for machines where the `ddprof` script is not on the PATH."""

from ddprof.cli.main import main

main()
