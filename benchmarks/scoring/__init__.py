"""Accuracy of ddprof over labelled runs, whose truth is known."""
