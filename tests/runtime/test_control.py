"""A shard's control, event by event."""

import tardigrad as tg
from tardigrad.runtime.control import Control
from tardigrad.runtime.messages import Applied, Event, PushHeader, Released


def pushed(control: Control, worker: int, step: int):
    read = (control.releases[worker][-1].version,)
    what = (10 * worker + step, worker, step, 0, read, 0.0, 0.0, 1.0, True, step)
    return control.decide(Event("push", 0.0, tuple(PushHeader(*what))))


def released(decided) -> list[int]:
    return [item.worker for item in decided if isinstance(item, Released)]


def test_a_shard_goes_on_to_answer_by_its_policy_after_its_last_version():
    """Whom it held back then is free when the slowest has pushed, has left, or has joined anew."""
    for event in ("push", "leave"):
        control = Control(tg.StaleSynchronous(bound=0), 0, 1, range(2), updates=1)
        assert pushed(control, 0, 0) == [Applied((0,), 1.0)]
        assert control.done
        if event == "push":
            assert released(pushed(control, 1, 0)) == [0, 1]
        else:
            assert released(control.decide(Event("leave", 0.0, (1,)))) == [0]
            assert released(control.decide(Event("join", 0.0, (2,)))) == [2]
            assert released(pushed(control, 2, 0)) == []
            assert released(pushed(control, 0, 1)) == [0, 2]
        assert control.version == 1
        assert not control.rows
