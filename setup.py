"""Finds the packages of the four mapped trees; everything else is declared in pyproject.toml.

`[tool.setuptools.packages.find]` cannot do it: it finds `analyzers.job`, where the package is `ddprof.analyzers.job`.
"""

from setuptools import find_packages, setup

TREES = ("analyzers", "dashboard", "workloads", "sample_traces")

setup(
    packages=[
        *("ddprof", *(f"ddprof.{name}" for name in find_packages("ddprof"))),
        *(f"ddprof.{tree}" for tree in TREES),
        *(f"ddprof.{tree}.{name}" for tree in TREES for name in find_packages(tree)),
    ]
)
