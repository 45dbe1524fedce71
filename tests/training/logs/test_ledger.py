"""Every moment of a start belongs to one kind."""

from __future__ import annotations

import random

from t5x_like.training.logs.ledger import KINDS, Ledger


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_kinds_add_up_to_the_time_that_has_passed() -> None:
    draw, clock = random.Random(0), Clock()
    ledger = Ledger(clock=clock)
    spent = dict.fromkeys(KINDS, 0.0)

    def work(kind: str, depth: int) -> None:
        for _ in range(2):
            seconds = draw.random()
            spent[kind] += seconds
            clock.now += seconds
            if depth:
                inner = draw.choice([*KINDS])
                with ledger.spending(inner):
                    work(inner, depth - 1)

    work("startup", 3)
    ledger.turn("steps")
    work("steps", 3)
    found = ledger.seconds()
    assert sum(found.values()) == clock.now - 100
    assert {kind: round(value, 9) for kind, value in found.items()} == {
        kind: round(value, 9) for kind, value in spent.items()
    }


def test_an_error_ends_its_kind() -> None:
    clock = Clock()
    ledger = Ledger(clock=clock)
    try:
        with ledger.spending("evaluation"):
            clock.now += 2
            raise ValueError
    except ValueError:
        clock.now += 3
    assert (ledger.seconds()["evaluation"], ledger.seconds()["startup"]) == (2, 3)


def test_what_was_counted_while_compiling_is_in_no_rate() -> None:
    ledger = Ledger(clock=Clock())
    ledger.turn("compile")
    ledger.count("tokens", 5)
    ledger.turn("steps")
    ledger.count("tokens", 7)
    assert (ledger.totals["tokens"], ledger.rated["tokens"]) == (12, 7)
