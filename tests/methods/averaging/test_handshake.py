"""The token of a run: who knows it is let in, who does not learns nothing, and a trainer tells a stranger's server nothing."""

import hashlib
import hmac
import os
import struct
import threading
import time
import zlib

import pytest
from trainers import RUN_TOKEN, meanwhile
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.methods.averaging import handshake
from bulksample.methods.averaging.frame_server import FrameServer
from bulksample.methods.averaging.frames import Connection, Frame, Kind, connect, listen
from bulksample.methods.averaging.handshake import REFUSAL, TOKEN, token_of_server, token_of_trainer

SECRET = RUN_TOKEN.encode()


class Opened:
    """A frame server of two places that keeps the frames it is given, and its address."""

    def __init__(self, clock=time.monotonic):
        listener = listen("127.0.0.1:0")
        self.address, self.frames, self.said = f"127.0.0.1:{listener.getsockname()[1]}", [], []
        self.server = FrameServer(listener, SECRET, 2, lambda *one: self.frames.append(one), lambda *_: None, self.said.append, clock)

    def turn(self):
        self.server.turn(0.01)

    def heard(self, line):
        return meanwhile(self.turn, lambda: line.receive(PATIENCE))


@pytest.fixture
def opened():
    made = Opened()
    yield made
    made.server.close(0)


def test_both_ends_prove_the_token_and_then_frames_pass(opened):
    line = meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE))
    line.send(Frame(Kind.ASK), PATIENCE)
    while not opened.frames:
        opened.turn()
    assert opened.frames[0][1] == Frame(Kind.ASK)
    assert opened.frames[0][0].proved
    line.close()


def test_a_wrong_token_is_refused_with_a_message_on_the_side_of_the_trainer(opened):
    with pytest.raises(
        UsageError, match=r"127.0.0.1:\d+ refuses: prove the token of the run first; use its token_file or BULKSAMPLE_TOKEN"
    ):
        meanwhile(opened.turn, lambda: handshake.join(opened.address, b"x" * 64, PATIENCE))
    assert opened.server.refused == 1
    assert not opened.frames


def old_frame(kind, payload=b""):
    """A frame as a trainer without a token writes it, by the layout that the module describes."""
    head = struct.pack("<3sBB3xIIQI", b"BSF", 1, kind, 0, 0, len(payload), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def proof(key, side, *parts):
    return hmac.new(key, side + b"".join(parts), hashlib.sha256).digest()


@pytest.mark.parametrize("sent", [
    old_frame(1), old_frame(3, b'{"version": "1"}'), old_frame(3, b"[" * 60_000), old_frame(11), old_frame(7, bytes(28)),
    old_frame(14, bytes(32)),
    old_frame(12, bytes(31)), old_frame(12, bytes(32)) * 2, old_frame(12, bytes(32)) + old_frame(1),
    old_frame(12, bytes(32)) + old_frame(14, proof(SECRET, b"trainer", bytes(32), bytes(32))),
    old_frame(12, bytes(32)) + old_frame(14, b""), b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", b"\x16\x03\x01" + bytes(100),
])  # fmt: skip
def test_every_stranger_hears_the_same_words_and_nothing_of_what_it_sent(opened, sent):
    stranger = connect(opened.address, PATIENCE)
    stranger.socket.sendall(sent)
    refusal = opened.heard(stranger)
    if refusal.kind == Kind.CHALLENGE:
        refusal = opened.heard(stranger)
    assert refusal == Frame(Kind.REFUSE, REFUSAL.encode())
    assert not opened.frames
    stranger.close()


def test_a_recorded_proof_opens_nothing(opened):
    line = connect(opened.address, PATIENCE)
    line.send(Frame(Kind.KNOCK, bytes(32)), PATIENCE)
    first = opened.heard(line).payload
    line.send(Frame(Kind.PROOF, proof(SECRET, b"trainer", bytes(32), first)), PATIENCE)
    assert opened.heard(line) == Frame(Kind.PROOF, proof(SECRET, b"server", bytes(32), first))
    again = connect(opened.address, PATIENCE)
    again.send(Frame(Kind.KNOCK, bytes(32)), PATIENCE)
    assert opened.heard(again).payload != first
    again.send(Frame(Kind.PROOF, proof(SECRET, b"trainer", bytes(32), first)), PATIENCE)
    assert opened.heard(again).kind == Kind.REFUSE
    line.close()
    again.close()


@pytest.mark.parametrize("answer", [
    lambda knock, proof: Frame(Kind.PROOF, hmac.digest(b"another" * 5, b"server" + knock + bytes(32), "sha256")),
    lambda knock, proof: Frame(Kind.PROOF, proof),  # the trainer's own proof, sent back
    lambda knock, proof: Frame(Kind.PROOF),
])  # fmt: skip
def test_a_server_that_does_not_know_the_token_is_told_nothing(answer):
    listener, heard = listen("127.0.0.1:0"), []
    listener.setblocking(True)

    def false_server():
        line = Connection(listener.accept()[0])
        heard.append(line.receive(PATIENCE))
        line.send(Frame(Kind.CHALLENGE, bytes(32)), PATIENCE)
        heard.append(line.receive(PATIENCE))
        line.send(answer(heard[0].payload, heard[1].payload), PATIENCE)
        heard.append(line.socket.recv(100) if line.socket.setblocking(True) is None else None)

    serving = threading.Thread(target=false_server, daemon=True)
    serving.start()
    with pytest.raises(UsageError, match="does not know the token of the run; check the address, and the token on both sides"):
        handshake.join(f"127.0.0.1:{listener.getsockname()[1]}", SECRET, PATIENCE)
    serving.join(PATIENCE)
    assert [getattr(one, "kind", one) for one in heard] == [Kind.KNOCK, Kind.PROOF, b""]
    listener.close()


# ---- where a token comes from


def token_file(folder, text=RUN_TOKEN, mode=0o600):
    file = folder / "token"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_a_token_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN, "e" * 40)
    assert token_of_trainer(None) == token_of_server(None, False) == b"e" * 40
    file = token_file(tmp_path, f"{RUN_TOKEN}\n")
    assert token_of_trainer(file) == token_of_server(file, True) == SECRET


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_token_that_others_may_read_is_refused(tmp_path, mode):
    with pytest.raises(UsageError, match=f"readable by its owner alone; .*token has mode {mode:o}: use 600, and a new token"):
        token_of_server(token_file(tmp_path, mode=mode), True)


def test_tokens_that_are_none(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"at least 32 characters; the file .*token has 5"):
        token_of_trainer(token_file(tmp_path, " short\n"))
    with pytest.raises(UsageError, match=r"cannot read the token file .*: No such file"):
        token_of_trainer(str(tmp_path / "missing"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageError, match="must be a regular file"):
        token_of_trainer(str(tmp_path / "pipe"))
    with pytest.raises(UsageError, match="cannot make the token file"):
        token_of_server(str(tmp_path / "no" / "folder"), True)
    monkeypatch.setenv(TOKEN, "short")
    with pytest.raises(UsageError, match="at least 32 characters; BULKSAMPLE_TOKEN has 5"):
        token_of_trainer(None)
    monkeypatch.delenv(TOKEN)
    with pytest.raises(UsageError, match="a trainer joins with the token of the run; got none: use token_file='FILE' or BULKSAMPLE_TOKEN"):
        token_of_trainer(None)
    with pytest.raises(UsageError, match="trainers join with the token of the run; got none"):
        token_of_server(None, starts_trainers=False)


@pytest.mark.parametrize("odd", ["\0", "\n", "\x1b", "\x7f", "é"])
def test_a_token_is_made_of_printable_characters(tmp_path, monkeypatch, odd):
    """Others may not survive the environment in which trainers get it."""
    text = f"{'a' * 20}{odd}{'b' * 20}"
    with pytest.raises(UsageError, match=r"a token must be made of printable ASCII characters; the file .*token holds others: use"):
        token_of_server(token_file(tmp_path, text), True)
    if odd != "\0":  # which no environment holds
        monkeypatch.setenv(TOKEN, text)
        with pytest.raises(UsageError, match="printable ASCII characters; BULKSAMPLE_TOKEN holds others"):
            token_of_trainer(None)


def test_every_printable_character_may_stand_in_a_token(tmp_path):
    text = "".join(map(chr, range(126, 31, -1))) + "."
    assert token_of_trainer(token_file(tmp_path, text)) == text.encode()


def test_a_server_makes_a_token_file_that_is_missing_and_a_new_token_for_its_own_trainers(tmp_path, monkeypatch):
    file = tmp_path / "token"
    made = token_of_server(str(file), False)
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(made) == 64
    assert token_of_server(str(file), False) == token_of_trainer(str(file)) == made
    monkeypatch.delenv(TOKEN)
    assert len({token_of_server(None, True) for _ in range(3)} | {made}) == 4


def test_a_token_file_is_never_there_without_its_token(tmp_path, monkeypatch):
    """Two servers that start at once with one file get one token, even if one starts while the other makes the file."""
    file, make, others = str(tmp_path / "token"), handshake.new_token, []

    def slow():
        if not others:
            others.append(None)
            others[0] = token_of_server(file, False)
        return make()

    monkeypatch.setattr(handshake, "new_token", slow)
    assert token_of_server(file, False) == others[0]
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
