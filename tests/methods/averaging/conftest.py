"""Servers and trainers of these tests know one token, from the environment."""

import pytest
from trainers import RUN_TOKEN

from bulksample.methods.averaging.handshake import TOKEN


@pytest.fixture(autouse=True)
def run_token(monkeypatch):
    monkeypatch.setenv(TOKEN, RUN_TOKEN)
