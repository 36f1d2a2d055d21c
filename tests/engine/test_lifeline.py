"""A process tied to its parent ends when the parent is killed."""

from __future__ import annotations

import subprocess
import sys

import psutil

FAMILY = """
import multiprocessing, time
from engine.plugin.lifeline import exit_with_parent

def child(ready):
    exit_with_parent()
    ready.set()
    time.sleep(600)

if __name__ == "__main__":
    exit_with_parent()  # not a child of multiprocessing: does nothing
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    process = spawn.Process(target=child, args=(ready,), daemon=True)
    process.start()
    ready.wait()
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_a_killed_parent_takes_its_child_along(tmp_path):
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    _, alive = psutil.wait_procs([child], timeout=20)
    assert not alive
