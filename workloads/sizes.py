"""The size options that the language models share; the defaults train in milliseconds on a CPU."""

from __future__ import annotations

import argparse


def add_text_sizes(parser: argparse.ArgumentParser, layers: int, length: int = 64, width: int = 96) -> None:
    """--batch-size, --length, --width, --heads, --layers, --words."""
    parser.add_argument("--batch-size", type=int, default=4, help="sequences per replica and step")
    parser.add_argument("--length", type=int, default=length, help="tokens of a sequence")
    parser.add_argument("--width", type=int, default=width)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=layers)
    parser.add_argument("--words", type=int, default=1024, help="size of the vocabulary")
