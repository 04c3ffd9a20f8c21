"""The token of a run, and the proof that both ends of a connection know it.

    a trainer                                         the server
    KNOCK    32 random bytes a                        CHALLENGE    32 random bytes b
    PROOF    HMAC-SHA256(token, "trainer", a, b)      PROOF        HMAC-SHA256(token, "server", a, b);  or REFUSE

The server says nothing about the run before the proof of the trainer, and the trainer says nothing before that of the server. The token
itself never travels, and a recorded proof is worth nothing, because both ends choose new bytes for each connection.

Frames after the proofs are neither encrypted nor signed. Who can read the network reads the weights; who can change packets on their
way can take over a connection. Use a tunnel (``ssh -L``) over such a network.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from typing import NamedTuple

from ...errors import PeerLost, UsageError
from .frames import MAX_BYTES, BadFrame, Connection, Frame, Kind, connect

TOKEN = "BULKSAMPLE_TOKEN"  # the environment variable
NONCE_BYTES = 32
TEXT_BYTES = 2**16  # the largest frame of text, and of a trainer without a part
REFUSAL = f"prove the token of the run first; use its token_file or {TOKEN}, and its version of bulksample"
_SHORTEST = 32
_MOST_BYTES = 4096  # of a file


class Handshake(NamedTuple):
    """The random bytes that both ends of a connection chose."""

    of_trainer: bytes
    of_server: bytes

    def proof(self, token: bytes, side: str) -> bytes:
        """Return the proof of one side, ``trainer`` or ``server``: 32 bytes."""
        return hmac.digest(token, side.encode() + self.of_trainer + self.of_server, hashlib.sha256)

    def is_proved(self, token: bytes, side: str, frame: Frame) -> bool:
        """Return True if a frame is the proof of one side."""
        return frame.kind == Kind.PROOF and hmac.compare_digest(frame.payload, self.proof(token, side))


def nonce() -> bytes:
    """Return the random bytes of one side."""
    return secrets.token_bytes(NONCE_BYTES)


def join(address: str, token: bytes, seconds: float) -> Connection:
    """Connect to the server at an address, and prove the token of the run to each other.

    Raises `PeerLost` if no server answers in time. Raises `UsageError` if the server refuses, or does not know the token.
    """
    connection = connect(address, seconds)
    try:
        connection.reader.max_bytes = TEXT_BYTES
        knock = Frame(Kind.KNOCK, nonce())
        connection.send(knock, seconds)
        challenge = expect(connection, connection.receive(seconds), Kind.CHALLENGE)
        handshake = Handshake(knock.payload, challenge.payload)
        connection.send(Frame(Kind.PROOF, handshake.proof(token, "trainer")), seconds)
        answer = expect(connection, connection.receive(seconds), Kind.PROOF)
        if len(challenge.payload) != NONCE_BYTES or not handshake.is_proved(token, "server", answer):
            raise UsageError(f"{connection.name} does not know the token of the run; check the address, and the token on both sides")
        connection.reader.max_bytes = MAX_BYTES
    except BaseException:
        connection.close()
        raise
    return connection


def expect(connection: Connection, frame: Frame, kind: Kind) -> Frame:
    """Return the frame if it is of the given kind.

    Raises `UsageError` if the server refuses. Raises `PeerLost` if the run has ended. Raises `BadFrame` if the frame is of any other kind.
    """
    if frame.kind == Kind.REFUSE:
        raise UsageError(f"{connection.name} refuses: {frame.payload.decode(errors='replace')}")
    if frame.kind == Kind.END:
        raise PeerLost(f"the run at {connection.name} has ended")
    if frame.kind != kind:
        raise BadFrame(f"{connection.name} sent a frame of kind {frame.kind.name}; {kind.name} was due")
    return frame


# ---- where a token comes from


def token_of_trainer(file: str | None) -> bytes:
    """Return the token in a file, or else in the environment; raises `UsageError` if there is none."""
    token = _read(file) if file else _of_environment()
    if token is None:
        raise UsageError(f"a trainer joins with the token of the run; got none: use token_file='FILE' or {TOKEN}")
    return token


def token_of_server(file: str | None, starts_trainers: bool) -> bytes:
    """Return the token of a run: in a file, made if there is no such file; in the environment; or new for trainers started here."""
    if file:
        _make(file)
        return _read(file)
    token = _of_environment()
    if token is None and not starts_trainers:
        raise UsageError(f"trainers join with the token of the run; got none: use token_file='FILE', which is made if missing, or {TOKEN}")
    return token or new_token()


def shared_token(file: str | None) -> str:
    """Return the words for the token of a run that others can have too; an empty string if it was made for trainers started here."""
    if file:
        return f"--token-file {file}"
    return f"the {TOKEN} of this process" if _of_environment() else ""


def new_token() -> bytes:
    """Return a random token: 64 hexadecimal digits."""
    return secrets.token_hex(32).encode()


def _of_environment() -> bytes | None:
    text = os.environ.get(TOKEN, "").strip()
    return _checked(os.fsencode(text), TOKEN) if text else None


def _make(file: str) -> None:
    """Write a new token to a file that its owner alone may read, unless there is such a file. It gets its name with its content."""
    if os.path.lexists(file):
        return
    try:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(file) or ".", prefix=".bulksample-token-") as stream:  # mode 600
            stream.write(new_token() + b"\n")
            stream.flush()
            with contextlib.suppress(FileExistsError):  # another server was first
                os.link(stream.name, file)
    except OSError as error:
        raise UsageError(f"cannot make the token file {file}: {error.strerror}; use a folder that exists and can be written") from error


def _read(file: str) -> bytes:
    """Return the token in a file that its owner alone may read; raises `UsageError`."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"a token file must be a regular file; got {file}")
            if status.st_mode & 0o077:
                mode = f"{stat.S_IMODE(status.st_mode):o}"
                raise UsageError(f"a token file must be readable by its owner alone; {file} has mode {mode}: use 600, and a new token")
            return _checked(stream.read(_MOST_BYTES).strip(), f"the file {file}")
    except OSError as error:
        raise UsageError(f"cannot read the token file {file}: {error.strerror}; use the file of the server") from error


def _checked(token: bytes, origin: str) -> bytes:
    if len(token) < _SHORTEST:
        raise UsageError(f"a token must have at least {_SHORTEST} characters; {origin} has {len(token)}: use `openssl rand -hex 32`")
    if not (token.isascii() and token.decode().isprintable()):
        raise UsageError(f"a token must be made of printable ASCII characters; {origin} holds others: use `openssl rand -hex 32`")
    return token
