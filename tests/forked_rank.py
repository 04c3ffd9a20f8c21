"""A rank as a launcher sees it, run as ``python -I -S forked_rank.py WORDS``: the fork server runs the words (`fork_server.py`)."""

import json
import os
import signal
import socket

PASSED = ("PMI_FD", "HYDI_CONTROL_FD")


def main(words):
    to = socket.socket(socket.AF_UNIX)
    to.connect(os.environ["BULKSAMPLE_FORK_SERVER"])
    files = [0, 1, 2, *(int(os.environ[name]) for name in PASSED if name in os.environ)]
    asked = {"words": words, "environment": dict(os.environ), "folder": os.getcwd(), "mark": os.environ["BULKSAMPLE_LAUNCH"]}
    text = json.dumps(asked).encode()
    to.sendall(len(text).to_bytes(8, "big"))
    sent = socket.send_fds(to, [text], files)
    to.sendall(text[sent:])
    child = read(to)["child"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: pass_on(child, number))
    status = read(to)["status"]
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def pass_on(child, number):
    try:
        os.kill(child, number)
    except ProcessLookupError:
        pass


def read(of):
    length = int.from_bytes(of.recv(8, socket.MSG_WAITALL), "big")
    return json.loads(of.recv(length, socket.MSG_WAITALL))


import sys  # noqa: E402

main(sys.argv[1:])
