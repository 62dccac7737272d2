"""Ranks of a TensorFlow job, from the cluster's description."""

from __future__ import annotations

import json

import pytest

from ddprof.capture.tensorflow.job import task_of_cluster


@pytest.mark.parametrize(
    ("task", "cluster", "expected"),
    [
        ({"type": "worker", "index": 1}, {"worker": ["a:1", "b:1"]}, (1, 2)),
        ({"type": "worker", "index": 0}, {"chief": ["a:1"], "worker": ["b:1"]}, (1, 2)),
        ({"type": "chief", "index": 0}, {"chief": ["a:1"], "worker": ["b:1"]}, (0, 2)),
        ({}, {}, (0, 1)),
    ],
)
def test_tensorflow_ranks_come_from_the_cluster(task: object, cluster: object, expected: tuple[int, int]) -> None:
    assert task_of_cluster(json.dumps({"task": task, "cluster": cluster})) == expected
