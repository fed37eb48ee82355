"""Outages: every answer of Redis that means "wait" is told as one, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from redis._parsers.base import BaseParser

from tailrace.store.connection.outages import CODES, unavailable


def answer(text: str) -> Exception:
    """What the client library makes of an error that Redis answers."""
    parse: Callable[[str], Exception] = BaseParser.parse_error
    return parse(text)


@pytest.mark.parametrize("code", CODES)
def test_an_answer_is_told_by_its_code(code: str) -> None:
    text = "866 10.0.0.1:7000" if code in ("MOVED", "ASK") else "because of something"
    found = unavailable(answer(f"{code} {text}"))
    assert found is not None and found.code == code
    assert CODES[code][0] in str(found) and found.remedy == CODES[code][1]


@pytest.mark.parametrize("code", ["OOM", "READONLY", "MISCONF", "NOPERM"])
@pytest.mark.parametrize(
    "text",
    [
        "ERR Error running script (call to f_0c1): @user_script:147: @user_script: 147: -{code} not now",
        "ERR Error running script (call to f_0c1): @user_script:147: {code} not now",
        "{code} not now script: 0c1, on @user_script:147.",
    ],
)
def test_inside_of_a_script_it_is_told_by_its_text(code: str, text: str) -> None:
    found = unavailable(answer(text.format(code=code)))
    assert found is not None and found.code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (redis.ConnectionError("Error 111 connecting to h:1. Connection refused."), "AWAY"),
        (redis.TimeoutError("Timeout reading from socket"), "TIMEOUT"),
        (TimeoutError(), "TIMEOUT"),
        (OSError("no route"), "AWAY"),
        (redis.AuthenticationError("Authentication required."), "NOAUTH"),
        (redis.ResponseError("unknown command `EVALSHA`, with args beginning with: "), "ERR"),
        (redis.ResponseError("Command # 1 (HSET k v) of pipeline caused error: MISCONF no disk"), "MISCONF"),
    ],
)
def test_other_failures_are_told_apart(error: Exception, code: str) -> None:
    found = unavailable(error)
    assert found is not None and found.code == code and found.remedy


@pytest.mark.parametrize(
    "text",
    [
        "ERR Error running script (call to f_0c1): @user_script:9: no global variable 'OOM'",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "CROSSSLOT Keys in request don't hash to the same slot",
        "ERR value is not an integer: LOADING is not one",
    ],
)
def test_a_mistake_of_ours_is_no_outage(text: str) -> None:
    error = answer(text)
    assert unavailable(error) is None
    assert unavailable(error, always=True) is not None


def test_a_server_that_does_not_know_the_login_shows_no_password() -> None:
    for text in (
        "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `ann`, `c4nary`, ",
        "ERR unknown command 'AUTH', with args beginning with: 'ann' 'c4nary' ",
    ):
        found = unavailable(answer(text), always=True)
        assert found is not None and "unknown command" in str(found) and "c4nary" not in str(found)
