"""What needs no search for dead letters, by what views and feeds say."""

from __future__ import annotations

import pytest

from tailrace.pipeline.dead_letters.search_plan import MOST, Passing, Searching, SearchPlan, SkipReport

MANY = 200_000


def account(*offsets: int, skipped: int = 0, generation: int = 1, whole: bool = True) -> SkipReport:
    return SkipReport(generation, dict(enumerate(offsets)), skipped, whole)


def heard(*accounts: SkipReport) -> SearchPlan:
    plan = SearchPlan()
    for one in accounts:
        plan.hear("view", one)
    return plan


def test_nothing_new_needs_nothing() -> None:
    assert heard(account()).decide({0: 5}, {0: 5}, impatient=True) is None


def test_records_wait_for_what_the_outputs_say_of_them() -> None:
    assert heard(account()).decide({0: 5}, {0: 9, 1: 3}, impatient=False) is None


def test_records_that_no_output_reads_are_searched() -> None:
    assert heard().decide({0: 5}, {0: 9, 1: 3}, impatient=False) == Searching({0: 9, 1: 3})


def test_records_that_every_output_has_used_are_passed_over() -> None:
    plan = heard(account(), account(MANY, MANY))
    plan.hear("other", account())
    assert plan.decide({}, {0: MANY + 9, 1: MANY}, impatient=False) is None, "the other may have skipped some"
    plan.hear("other", account(MANY, MANY + 5))
    assert plan.decide({}, {0: MANY + 9, 1: MANY}, impatient=False) == Passing({0: MANY, 1: MANY})


def test_records_among_which_an_output_has_skipped_some_are_searched() -> None:
    plan = heard(account(), account(MANY, skipped=1))
    plan.hear("other", account())
    assert plan.decide({}, {0: MANY * 2}, impatient=False) == Searching({0: MANY})
    # What comes after them is good again.
    for name in ("view", "other"):
        plan.hear(name, account(MANY * 2, skipped=1 if name == "view" else 0))
    assert plan.decide({0: MANY}, {0: MANY * 2}, impatient=False) == Passing({0: MANY * 2})


def test_outputs_whose_batches_end_in_turns_vouch_for_what_all_have_read() -> None:
    plan = heard(account(), account(MANY))
    searched = 0
    for number in range(1, 5):
        plan.hear("other", account(MANY * number + 50))
        plan.hear("view", account(MANY * (number + 1)))
        assert plan.decide({0: searched}, {0: MANY * 9}, impatient=False) == Passing({0: MANY * number + 50})
        searched = MANY * number + 50


def test_an_output_that_has_never_skipped_anything_vouches_for_all_it_has_read() -> None:
    plan = heard(account(MANY), account(MANY * 2))
    assert plan.decide({0: 5}, {0: MANY * 2}, impatient=False) == Passing({0: MANY * 2})


@pytest.mark.parametrize("first", [account(MANY, skipped=1), account(MANY, whole=False), account(whole=False)])
def test_records_from_before_an_output_was_heard_of_are_searched(first: SkipReport) -> None:
    plan = heard(first, account(MANY * 2, skipped=first.skipped, whole=first.whole))
    assert plan.decide({}, {0: MANY * 2}, impatient=False) == Searching({0: MANY * 2})


def test_a_new_build_vouches_for_what_it_reads_itself() -> None:
    plan = heard(account(MANY, skipped=7), account(generation=2), account(MANY, generation=2))
    assert plan.decide({}, {0: MANY}, impatient=False) == Passing({0: MANY})


def test_an_output_that_does_not_come_on_holds_up_no_dead_letter_for_ever() -> None:
    plan = heard(account(), account(MANY))
    plan.hear("failed", account())
    assert plan.decide({}, {0: MANY * 2}, impatient=False) is None
    assert plan.decide({}, {0: MANY * 2}, impatient=True) == Searching({0: MANY})
    assert heard(account()).decide({}, {0: MANY}, impatient=True) == Searching({0: MANY})


def test_a_long_search_is_made_in_parts() -> None:
    plan = heard(account(), account(MOST * 3, skipped=1))
    assert plan.decide({0: 10}, {0: MOST * 3}, impatient=False) == Searching({0: MOST + 10})
