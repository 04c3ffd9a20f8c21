"""The last word of a rank that cannot speak for itself any more: killed, crashed, or left by a call of a C library.

The launcher ends all ranks when one is lost, before the others can notice, and it tells a process number at the best,
no rank; where the lost one left with code 0 in the middle of its work, the whole job may end with code 0. So each rank
has a sentinel, a shell of a megabyte that waits for the end of a pipe. The kernel closes the pipe however the rank
ends. If the rank has not said how it leaves, the sentinel names it and asks the launcher to end the job with code 75.

It stands in the process group of its rank: where the launcher kills the group, nothing more is said. Where the launcher
does not, since the rank is gone, the sentinel does so at its end, and no child of the rank is left.
"""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import suppress

from ...errors import EXIT_PEER_LOST
from .launchers import Launch

# Its input: lines "STATE NUMBER", the last one counts. Its output is the wire to a launcher that speaks PMI-1, or nothing.
# Half a second later a launcher that ends the job on its own has killed the group, or taken note of the process, which is
# gone then. Field 52 of /proc/PID/stat is how the process ended, as wait(2) says it.
_SCRIPT = r"""
rank=$1 size=$2 pid=$3 host=$4 code=$5 group=$6
state=starting seconds=0
while read -r word number; do
    state=$word seconds=$number
    case $state in
    told) exit ;;
    abort) echo "cmd=abort exitcode=$number"; exit ;;
    esac
done
sleep 0.5 || sleep 1
kill -0 "$pid" 2>/dev/null || exit
ended=
read -r line 2>/dev/null </proc/"$pid"/stat && { set -- ${line##*)}; shift 49; ended=$1; }
signal=$((${ended:-0} % 128))
case $state:$signal in
left:0) exit ;;
starting:14) what="waited $seconds s for the other ranks to start" ;;
left:14) what="waited $seconds s for the other ranks to end" ;;
*:9) what="was killed by signal 9, as by the kernel when memory runs out" ;;
*:0) what="ended${ended:+ with exit code $((ended / 256))} in the middle of the work" ;;
*) what="was ended by signal $signal" ;;
esac
echo "bulksample: rank $rank of $size (process $pid on $host) $what
ending all ranks; run again with --resume auto to go on from the last checkpoint" >&2
sleep 0.1 || sleep 1
echo "cmd=abort exitcode=$code"
[ "$group" = "$pid" ] && kill -9 0
"""


class Sentinel:
    """Told how this process stands; it speaks if the process ends otherwise than it said.

    Parameters
    ----------
    launch : Launch
        What the launcher says of the job.
    """

    def __init__(self, launch: Launch) -> None:
        rank = "?" if launch.rank is None else str(launch.rank)
        shell = shutil.which("sh", path=os.defpath)
        self._pipe, wire = -1, _launcher_wire()
        self._wired = wire is not None
        if shell is None or not hasattr(os, "posix_spawn"):
            return
        reading, self._pipe = os.pipe()
        words = [rank, str(launch.ranks), str(os.getpid()), socket.gethostname(), str(EXIT_PEER_LOST), str(os.getpgrp())]
        nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        wires = [(os.POSIX_SPAWN_DUP2, reading, 0), nowhere if wire is None else (os.POSIX_SPAWN_DUP2, wire, 1)]
        os.posix_spawn(shell, ["sh", "-c", _SCRIPT, "sentinel", *words], os.environ, file_actions=wires)
        os.close(reading)
        os.register_at_fork(after_in_child=self._let_go)

    def say(self, state: str, number: float = 0) -> bool:
        """How the process stands. Whether there is a sentinel that hears it.

        ``starting`` and ``left`` (all ranks have): about to wait in MPI for so many seconds; ``working``; ``told``: the end
        will need no more words.
        """
        if self._pipe < 0:
            return False
        try:
            os.write(self._pipe, f"{state} {number:g}\n".encode())
        except OSError:  # it was killed
            return False
        return True

    def abort(self, code: int) -> bool:
        """Let the launcher end all ranks, this one as well; whether it has been asked to.

        `MPI_Abort` asks in the same words, but leaves at once, and the launcher may then report the end of some rank
        instead of `code`. It also runs the exit functions of libraries whose threads are at work.
        """
        return self.say("abort", code) and self._wired

    def _let_go(self) -> None:
        """In a child of this process, which would keep the pipe open."""
        os.close(self._pipe)
        self._pipe = -1


def _launcher_wire() -> int | None:
    """The socket to Hydra, the launcher of MPICH and its kin; None under other launchers."""
    wire = os.environ.get("PMI_FD", "")
    if "HYDI_CONTROL_FD" in os.environ and wire.isdigit():
        with suppress(OSError):
            os.fstat(int(wire))
            return int(wire)
    return None
