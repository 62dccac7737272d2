"""The journal of a long job is bounded."""

from ddprof.capture.journal import Journal


def test_batches_of_traced_steps_outlive_later_ones_and_count_once() -> None:
    """The window is early in a job; only its steps are compared between ranks."""
    journal = Journal()
    for step in range(5_000):
        journal.batch_fetched(step, 64, 640)
        journal.batch_fetched(step, 64, 640)
        if step == 9:
            journal.window_closed({"first_step": 5, "last_step": 9})
    kept = journal.batches()
    assert kept[:5] == [{"step": step, "batches": 2, "samples": 128, "elements": 1280} for step in range(5, 10)]
    assert kept[-1]["step"] == 4_999 and len(kept) < 1_000 and len({row["step"] for row in kept}) == len(kept)
    journal = Journal()
    journal.batch_fetched(0, 64, 640)
    journal.window_closed({"first_step": 0, "last_step": 0})
    journal.batch_fetched(0, 64, 640)
    assert journal.batches() == [{"step": 0, "batches": 2, "samples": 128, "elements": 1280}]
