"""When keys are to be looked at again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.materializer.queries.timers import Timers

keys = st.sampled_from([b"a", b"b", b"c"])
times = st.integers(0, 20)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), keys, st.none() | times),
            st.tuples(st.just("forward"), keys, times),
            st.tuples(st.just("due"), st.integers(0, 3), times),
        )
    )
)
def test_timers_are_one_time_per_key(history: list[tuple[str, bytes, int]]) -> None:
    timers = Timers()
    model: dict[bytes, int] = {}
    for action, what, time in history:
        if action == "due":
            found = timers.due(time, int(what))
            due = sorted((at, key) for key, at in model.items() if at <= time)[: int(what)]
            assert [(at, key) for key, at in found] == due
            for _, key in due:
                del model[key]
        elif action == "set":
            timers.set(what, time)
            model.pop(what, None)
            if time is not None:
                model[what] = time
        else:
            timers.bring_forward(what, time)
            model[what] = min(time, model.get(what, time))
        assert len(timers) == len(model) and timers.next() == min(model.values(), default=None)
        assert [timers.get(key) for key in (b"a", b"b", b"c")] == [model.get(key) for key in (b"a", b"b", b"c")]
