"""Simulate hosts on one machine: a network namespace each, joined by a bridge, with links shaped to a rate.

    python some_script.py                 the user's process: `enter` runs the script again, and waits
      unshare ... python some_script.py   process 1 of its own namespaces: builds a `Lab`, and measures
        host h0: mpirun, and a rank       network, UTS and IPC namespaces of its own
        host h1: a rank

The second process has its own network, mounts and process numbers, so it cannot touch the network of the machine. When it ends, the kernel
ends all processes inside and removes every namespace, link and mount. It ends with the first process.

Each host has one link: a veth pair with a token bucket at both ends, full duplex. Bandwidth can be shaped, delay cannot. Separate UTS and
IPC namespaces are necessary: without them MPI takes all hosts for one and uses shared memory. TCP is `reno`; `bbr`, the default of some
kernels, halves an all-to-all over such links.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from bulksample.errors import UsageError

_INSIDE = "BULKSAMPLE_NETLAB"  # set in the second process
_OWN = ["--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "setpriv": "util-linux", "mount": "mount"}
_AGENT = Path("/run/agent")  # of the second process, which has a /run of its own
_NETWORK = "10.77.0"
_MOST_HOSTS = 200


def refusal() -> str | None:
    """Return the reason why no lab can be built here, or None."""
    if os.geteuid():
        return "network namespaces need root; run it as root, on a machine or in a container that allows it"
    missing = [f"{tool} (Debian package {package})" for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    build = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import netlab; netlab.Lab(2, '100mbit')"
    tried = subprocess.run(["unshare", *_OWN, sys.executable, "-c", build], capture_output=True, text=True, check=False)
    lines = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
    return f"this kernel, or the container it runs in, refuses what it takes: {lines[-1]}" if tried.returncode else None


def is_inside() -> bool:
    return _INSIDE in os.environ


def enter(script: list[str], **environment: str) -> int:
    """Run a Python script as process 1 of its own namespaces and return its exit code. It does not outlive this process."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *_OWN, sys.executable, *script]
    process = subprocess.Popen(command, env={**os.environ, **environment, _INSIDE: "1"})
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        process.kill()  # unshare takes its child with it, and process 1 takes all others
        process.wait()


def go_inside() -> None:
    """Run this program inside network namespaces and exit with its code; raise `UsageError` if that is impossible."""
    from ranks import mpirun

    if is_inside():
        return
    reason = refusal()
    if reason is None and "HYDRA" not in subprocess.run([mpirun(), "--version"], capture_output=True, text=True, check=False).stdout:
        reason = "hosts are reached by the mpirun of MPICH; this is another: pip install mpich would bring one"
    if reason:
        raise UsageError(reason)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(enter(sys.argv, TMPDIR=folder))


class Lab:
    """Hosts h0, h1, ... with links of a rate such as "100mbit"; "none" does not shape. Create it inside the namespaces only.

    Raises
    ------
    OSError
        If the kernel refuses a namespace, a link or a queue.
    """

    def __init__(self, hosts: int, rate: str = "none") -> None:
        if not 1 <= hosts <= _MOST_HOSTS:
            raise OSError(f"there can be 1 to {_MOST_HOSTS} hosts; got {hosts}")
        self.hosts = [f"h{i}" for i in range(hosts)]
        _do("mount -t tmpfs none /run")
        _do("mount -t tmpfs none /dev/shm")
        _do("ip link set lo up")
        _do("ip link add name hub type bridge")
        _do("ip link set hub addrgenmode none up")
        for i, host in enumerate(self.hosts):
            self._join(host, f"{_NETWORK}.{i + 1}/24")
        names = [f"{_NETWORK}.{i + 1} {host}" for i, host in enumerate(self.hosts)]
        Path("/run/hosts").write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n", encoding="utf-8")
        _do("mount --bind /run/hosts /etc/hosts")
        _AGENT.write_text(_agent(), encoding="utf-8")
        _AGENT.chmod(0o755)
        self.shape(rate)

    def _join(self, host: str, address: str) -> None:
        """Add a host and its link to the bridge, without link-local addresses, which would send packets of their own."""
        _do(f"ip netns add {host}")
        _do(f"ip link add {host} type veth peer name eth0 netns {host}")
        _do(f"ip link set {host} master hub addrgenmode none up")
        _do(f"ip -n {host} link set eth0 addrgenmode none up")
        _do(f"ip -n {host} link set lo up")
        _do(f"ip -n {host} address add {address} dev eth0")
        _do(f"ip netns exec {host} sh -c 'echo reno > /proc/sys/net/ipv4/tcp_congestion_control'")

    def shape(self, rate: str) -> None:
        """Give every link this rate in both directions. After a pause, 2 ms worth of bytes pass at once.

        The queue is deep: packets wait and are not lost, as in a lossless fabric.
        """
        burst = 0 if rate == "none" else max(4096, int(0.002 * bytes_per_second(rate)))
        for host in self.hosts:
            for where in (f"tc -n {host} qdisc {{}} dev eth0 root", f"tc qdisc {{}} dev {host} root"):
                if rate != "none":
                    _do(f"{where.format('replace')} tbf rate {rate} burst {burst} limit 16mb")
                elif "tbf" in _do(where.replace(" root", "").format("show")):
                    _do(where.format("del"))

    def sent_bytes(self) -> list[int]:
        """Return the bytes that each host has sent over its link, headers included."""
        return [json.loads(_do(f"ip -n {host} -j -s link show dev eth0"))[0]["stats64"]["tx"]["bytes"] for host in self.hosts]

    def command(self, mpirun: str, ranks: int, program: list[str], per_host: int = 1) -> list[str]:
        """Return the command that runs a program on the given ranks with MPICH's mpirun, so many per host in turn."""
        return over_mpi(self.hosts, mpirun, ranks, program, per_host)


def over_mpi(hosts: list[str], mpirun: str, ranks: int, program: list[str], per_host: int = 1) -> list[str]:
    """Run a program over MPI on some hosts of a lab, with so many consecutive ranks on each."""
    launcher = [mpirun, "-launcher", "ssh", "-launcher-exec", str(_AGENT), "-hosts", ",".join(hosts), "-ppn", str(per_host)]
    over_tcp = ["-genv", "UCX_TLS", "tcp,self"]
    return on_host(hosts[0], [*launcher, *over_tcp, "-n", str(ranks), *program])


def on_host(host: str, program: list[str]) -> list[str]:
    """Return the command that runs a program on a host."""
    named = 'echo "$0" > /proc/sys/kernel/hostname; exec "$@"'
    return ["ip", "netns", "exec", host, "unshare", "--uts", "--ipc", "sh", "-c", named, host, *program]


def _agent() -> str:
    """Return the script that mpirun calls instead of ssh: options, a host, and a command line for a shell."""
    there = shlex.join(on_host("HOST", ["sh", "-c", "WORDS"])).replace("HOST", '"$host"').replace("WORDS", '"$*"')
    return f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nhost=$1\nshift\nexec {there}\n'


def bytes_per_second(rate: str) -> float:
    """Convert ``100mbit`` to bytes per second, ``none`` to infinity; raise ValueError for anything else."""
    if rate == "none":
        return float("inf")
    found = re.fullmatch(r"([1-9]\d*)([kmg])bit", rate)
    if not found:
        raise ValueError(f"a rate is a number of kbit, mbit or gbit such as 100mbit; got {rate!r}")
    return int(found[1]) * 10.0 ** {"k": 3, "m": 6, "g": 9}[found[2]] / 8


def rates(text: str | tuple[str, ...]) -> tuple[str, ...]:
    """Parse and check ``10mbit,1gbit``."""
    found = tuple(text.split(",")) if isinstance(text, str) else text
    try:
        [bytes_per_second(rate) for rate in found]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return found


Rates = Annotated[Any, typer.Option(parser=rates, metavar="RATE,RATE", help="rates, such as 10mbit,100mbit,1gbit")]


def _do(command: str) -> str:
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"`{command}`: {done.stderr.strip() or done.returncode}")
    return done.stdout
