"""Budgets: so much for one user, and for all together."""

from __future__ import annotations

import pytest

from tailrace.access.budgets import Budget
from tailrace.access.rates import Bucket
from tailrace.access.refused import Refused


def test_a_user_holds_so_much_and_others_hold_theirs() -> None:
    budget = Budget("things", "things", 10, 25)
    budget.hold("a", "u1", 6)
    with pytest.raises(Refused) as refused:
        budget.hold("b", "u1", 5)
    assert (refused.value.status, refused.value.error) == (429, "too many things")
    assert refused.value.limit == "--limit-user-things" and refused.value.retry_after == 5
    assert refused.value.fields["limit"] == "--limit-user-things"
    budget.hold("b", "u2", 10)
    assert budget.used == 16
    budget.release("a")
    budget.release("a")
    budget.hold("c", "u1", 10)
    assert budget.used == 20 and len(budget) == 2


def test_all_together_hold_so_much() -> None:
    budget = Budget("things", "things", 10, 25)
    for user in ("u1", "u2"):
        budget.hold(user, user, 10)
    with pytest.raises(Refused) as refused:
        budget.check("u3", 6)
    assert (refused.value.status, refused.value.error, refused.value.limit) == (503, "no room", "--limit-things")
    budget.hold("nobody", "", 5)
    with pytest.raises(Refused):
        budget.hold("nobody else", "", 1)


def test_a_holder_has_more_or_less_than_before_and_stays_its_users() -> None:
    budget = Budget("things", "things", 10, 100)
    budget.hold("a", "u1", 8)
    budget.hold("a", "u2", 10)
    assert budget.used == 10
    with pytest.raises(Refused):
        budget.hold("a", "u2", 11)
    assert budget.used == 10
    budget.hold("b", "u2", 10)
    budget.hold("a", "u1", 3)
    budget.hold("c", "u1", 7)
    assert budget.used == 20


def test_who_holds_nothing_may_have_one_thing_of_any_size() -> None:
    budget = Budget("things", "things", 10, 20, lone=True)
    budget.hold("a", "u1", 50)
    for user in ("u1", "u2"):
        with pytest.raises(Refused):
            budget.check(user, 1)
    budget.release("a")
    budget.hold("b", "u1", 10)
    with pytest.raises(Refused):
        budget.hold("c", "u1", 1)


def test_some_uses_take_more_out_than_others() -> None:
    bucket = Bucket(1, 10, 0)
    assert bucket.take(0, 8) == 0
    assert bucket.take(0, 5) == 3
    assert bucket.take(3, 5) == 0
    assert bucket.take(3, 99) == 10 and bucket.take(13, 99) == 0
