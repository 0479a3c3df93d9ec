"""The bounded cache keeps what was used last, beside a plain list, and in a child that is forked meanwhile."""

from __future__ import annotations

import os
import random

from ags1.support.recently_used import RecentlyUsed


def test_what_was_used_last_is_kept_up_to_the_limit() -> None:
    chance = random.Random(7)
    cache, model = RecentlyUsed(50, len), []
    for _ in range(5000):
        name, action = chance.randrange(12), chance.randrange(10)
        found = next((value for other, value in model if other == name), None)
        model = [each for each in model if each[0] != name]
        if action == 0:
            cache.drop(name)
            continue
        wanted = found if found is not None else bytes(chance.randrange(60))
        assert cache.get(name, lambda wanted=wanted: wanted) is wanted
        model.insert(0, (name, wanted))
        while sum(len(value) for _, value in model) > 50 and len(model) > 1:
            model.pop()
        assert cache.newest_first() == [value for _, value in model]
    cache.clear()
    assert cache.newest_first() == []
    assert cache.get(1) is None


def test_a_value_that_is_there_already_stays() -> None:
    """The threat: two threads make one value, and each goes on with its own."""
    cache = RecentlyUsed(3)
    assert cache.get("name", lambda: cache.keep("name", "first") and "second") == "first"


def test_a_child_forked_while_a_value_is_kept_goes_on() -> None:
    cache = RecentlyUsed(2)
    cache.keep(1, "one")
    cache.keep(2, "two")
    with cache._lock.lock:
        child = os.fork()
        if child == 0:
            cache.keep(3, "three")
            os._exit(0 if cache.newest_first() == ["three", "two"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
