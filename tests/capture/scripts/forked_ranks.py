"""`forked_ranks.py COUNT SCRIPT [ARGUMENT...]`: ranks of a job, forked from one process that has imported torch's late
parts. The first rank that fails ends the others as torchrun does, and so does SIGTERM: by SIGTERM, then SIGKILL."""

import atexit
import ctypes
import gc
import os
import runpy
import signal
import sys
import time

from two_ranks import free_port

PATIENCE_S = 30  # after SIGTERM, as torchrun's
# After a peer has ended well: torch's process groups wait for ever now and then when they are taken down.
LEFT_BEHIND_S = 120
count, script = int(sys.argv[1]), sys.argv[2]
shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
os.environ.update(shared, MASTER_PORT=str(free_port()))
running: dict[int, int] = {}
failed, kill_at, alone_at = False, float("inf"), float("inf")


def torch_without_collections() -> None:
    """Import torch. Its 300,000 objects are looked through for cyclic garbage neither here nor as a process ends, which
    are half a second of a CPU each."""
    gc.disable()
    atexit.register(gc.freeze)
    import torch
    import torch._dynamo
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data

    torch.set_num_threads(1)
    gc.collect()
    gc.enable()


def keep_process_groups() -> None:
    """Take down no process group before the process ends. As DistributedDataParallel goes, torch joins the threads of
    its group and keeps the GIL, which one of them may wait for: without ddprof, too, 4 of 8 jobs stood still."""
    from torch.distributed import distributed_c10d as c10d

    make = c10d._new_process_group_helper

    def kept(*arguments, **options):
        made = make(*arguments, **options)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made[0]))
        return made

    c10d._new_process_group_helper = kept


def start(rank: int) -> int:
    """Fork a rank, which never returns."""
    process = os.fork()
    if process:
        return process
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    sys.argv, sys.path[0] = sys.argv[2:], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
    sys.exit(0)


def end(number: int = signal.SIGTERM, *_: object) -> None:
    """Ask all ranks to end, and be a failed job."""
    global failed, kill_at
    failed, kill_at = True, time.monotonic() + PATIENCE_S
    for rank in running:
        os.kill(rank, signal.SIGTERM)


torch_without_collections()
keep_process_groups()
for rank in range(count):
    running[start(rank)] = rank
signal.signal(signal.SIGTERM, end)
while running:
    process, status = os.waitpid(-1, os.WNOHANG)
    if process:
        print(f"rank {running.pop(process)} ended: {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
        alone_at = min(alone_at, time.monotonic() + LEFT_BEHIND_S)
        if status and not failed:
            end()
        continue
    if time.monotonic() > alone_at and not failed:
        print(f"ranks {sorted(running.values())} did not end after their peers", file=sys.stderr, flush=True)
        failed, kill_at = True, 0.0
    if time.monotonic() > kill_at:
        for other in running:
            os.kill(other, signal.SIGKILL)
    time.sleep(0.05)
sys.exit(int(failed))
