"""The fuzz targets over their seeds and some random inputs: the same ones each time, without a fuzzer."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import run, targets

# Such that each takes some tenths of a second; `make fuzz` has as many as there is time for.
COUNTS = {
    "decrypt": 300, "reader": 600, "key_metadata": 1500, "layout": 1000, "avro": 300, "inspect": 60, "thrift": 1500,
    "parquet_encrypt": 100, "parquet_decrypt": 120, "parquet_pages": 1000,
    "parquet_arrow": 60, "parquet_look": 150, "key_material": 40, "table": 60, "dataset": 60,
}  # fmt: skip
# One seed in so many, of targets that take long over each.
STEPS = {
    "inspect": 8, "parquet_decrypt": 4, "parquet_encrypt": 4, "parquet_arrow": 8, "parquet_look": 4, "key_material": 16,
    "table": 5, "dataset": 3,
}  # fmt: skip


def test_every_target_is_run() -> None:
    assert set(COUNTS) == set(targets.TARGETS) == set(run.NAMES)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_seeds(name: str) -> None:
    target, seeds = targets.TARGETS[name], targets.seeds(name)
    assert len(seeds) > 20
    for seed in seeds[:: STEPS.get(name, 1)]:
        target(seed)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_random_inputs(name: str) -> None:
    chance = random.Random(20_260_801)
    target, seeds = targets.TARGETS[name], targets.seeds(name)
    for number in range(COUNTS[name]):
        data = chance.randbytes(chance.randrange(60)) if number % 3 == 0 else run.mutated(chance, chance.choice(seeds))
        try:
            target(data)
        except BaseException as error:
            error.args = (f"{error}; reproducer: tests/fuzz/run.py --target {name} --replay-hex {data.hex() or '-'}",)
            raise


def test_a_wrong_answer_is_a_finding(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    # The oracle itself: a decryption that is wrong by one byte does not pass.
    monkeypatch.setattr(targets.ags1, "decrypt", lambda stream, key, **options: b"wrong")
    assert run.replay("decrypt", bytes([0, 0, 2, 5])) == 1
    assert "AssertionError: decrypt: b'wrong', but the reference has" in capfd.readouterr().err
