"""Engine processes end with the service, also when that is killed and cannot say goodbye."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

_GRACE_SECONDS = 5.0


def exit_with_parent() -> None:
    """In a process that `multiprocessing` started: end when the parent ends. Elsewhere nothing happens.

    vLLM's EngineCore otherwise outlives a service that was killed, with its memory and its GPUs. Not by
    PR_SET_PDEATHSIG: that watches the thread that started the process, and ours ends with the start.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    # Ctrl-C in a terminal reaches the whole process group. The engine would abort what the service is still
    # answering; in a group of its own it ends when the service, which got the signal too, tells it to.
    os.setpgid(0, 0)

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
