"""The statistics."""

from __future__ import annotations

import pytest
from llm_gate import arms, regret
from llm_gate.probe_data import Bars
from llm_gate.scoring import Scored
from llm_gate.stats import differences, mean_nll, regrets, share_above, trimmed_mean


def test_the_trimmed_mean_leaves_the_largest_twentieth_out() -> None:
    assert trimmed_mean([1.0] * 95 + [1000.0] * 5) == 1.0
    assert trimmed_mean([1.0] * 94 + [1000.0] * 6) == pytest.approx((94 + 1000) / 95)


@pytest.mark.parametrize("values", [[7.0], [7.0, 8.0]], ids=["one", "two"])
def test_the_trimmed_mean_keeps_at_least_one(values: list[float]) -> None:
    assert trimmed_mean(values) == 7.0


def test_shares_differences_and_regrets() -> None:
    assert share_above([0.0, 1.0, 2.0, 3.0], 1.0) == 0.5
    assert mean_nll([-1.0, -3.0]) == 2.0
    assert differences([-1.0, -2.0], [-1.5, -1.0]) == [0.5, 1.0]
    assert regrets([-1.0, -0.1], [-0.5, -0.2]) == [0.5, 0.0]
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        differences([0.0, 1.0], [0.0])


@pytest.mark.parametrize(
    ("cached", "broken"),
    [
        pytest.param([-1.0] * 200, 0, id="same"),
        pytest.param([-1.04] * 200, 0, id="noise"),
        pytest.param([-1.06] * 200, 1, id="drift"),
        pytest.param([-1.0] * 195 + [-3.0] * 5, 1, id="some-far-off"),
        pytest.param([-9.0] * 200, 3, id="garbage"),
    ],
)
def test_arms_are_held_against_each_other(cached: list[float], broken: int) -> None:
    deltas = arms.compare({300: ([-1.0] * 200, cached)})
    assert len(arms.broken_bars(deltas, Bars())) == broken


def test_one_bad_length_among_many_is_not_averaged_away() -> None:
    good = ([-1.0] * 64, [-1.0] * 64)
    pairs = dict.fromkeys(range(100, 10000, 100), good)
    deltas = arms.compare(pairs | {3072: ([-1.0] * 64, [-1.6] * 64)})
    assert (deltas.trimmed_mean, deltas.large_share, deltas.worst_length) == (0.0, 0.0, 3072)
    assert len(arms.broken_bars(deltas, Bars())) == 1


def test_nothing_generated_has_no_regret() -> None:
    assert regret.summarise([]) is None
    assert regret.summarise([Scored([], [], None)]) is None


@pytest.mark.parametrize(
    ("logprobs", "best", "rules"),
    [
        pytest.param([-0.1] * 100, [-0.1] * 100, [], id="greedy"),
        pytest.param([-0.3] * 5 + [-0.1] * 95, [-0.1] * 100, [], id="ties"),
        pytest.param([-0.3] * 6 + [-0.1] * 94, [-0.1] * 100, ["regret"], id="too-many"),
        pytest.param([-3.0] * 2 + [-0.1] * 98, [-0.1] * 100, ["regret"], id="too-large"),
        pytest.param([-2.5] * 100, [-2.5] * 100, ["low-logprob"], id="doubt"),
        pytest.param([-2.5] * 20, [-2.5] * 20, [], id="too-short-for-doubt"),
    ],
)
def test_regret_is_held_against_its_bars(logprobs: list[float], best: list[float], rules: list[str]) -> None:
    found = regret.summarise([Scored(logprobs, best, None)])
    assert found is not None
    assert [rule for rule, _text in regret.broken_bars(found, Bars())] == rules
