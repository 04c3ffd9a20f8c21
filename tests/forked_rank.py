"""A process as its launcher sees it: ``python -I -S forked_rank.py WORDS`` has the fork server run ``python WORDS`` (`fork_server.py`).

Python itself runs words that begin with another option than ``-c`` and ``-m``, and all where the environment names no server.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress

PASSED = ("PMI_FD", "HYDI_CONTROL_FD")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(words):
    """Send what the rank was given, then end as the forked process ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # what comes before there is a process to pass it on to waits
    to = socket.socket(socket.AF_UNIX)
    to.connect(os.environ["BULKSAMPLE_FORK_SERVER"])
    files = [0, 1, 2, *(int(os.environ[name]) for name in PASSED if name in os.environ)]
    asked = {"words": words, "environment": dict(os.environ), "folder": os.getcwd(), "mark": os.environ["BULKSAMPLE_LAUNCH"]}
    text = json.dumps(asked).encode()
    to.sendall(len(text).to_bytes(8, "big"))
    sent = socket.send_fds(to, [text], files)
    to.sendall(text[sent:])
    child = read(to)["child"]
    for number in SIGNALS:
        signal.signal(number, lambda number, _: pass_on(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    status = read(to)["status"]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def pass_on(child, number):
    with suppress(ProcessLookupError):
        os.kill(child, number)


def read(of):
    """Read a message as `fork_server.send` writes it."""
    length = int.from_bytes(of.recv(8, socket.MSG_WAITALL), "big")
    return json.loads(of.recv(length, socket.MSG_WAITALL))


first = sys.argv[1] if len(sys.argv) > 1 else "-"
if "BULKSAMPLE_FORK_SERVER" not in os.environ or (first[:1] == "-" and first not in ("-c", "-m")):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
main(sys.argv[1:])
