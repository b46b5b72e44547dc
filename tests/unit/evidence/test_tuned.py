"""The comparison of estimators at an equal share: what is chosen broke at most that share, and bolder settings broke more."""

from __future__ import annotations

import random

import pytest

from tests.evidence.tuned import Setting, Tuner, settings_of

_SHARE_PCT = 5.0


@pytest.fixture(scope="module")
def tuner() -> Tuner:
    """A machine that jumps now and then for eight days, with a sample in ten minutes, and one that begins on the sixth day."""
    rng = random.Random(3)
    series = [(600 * at, rng.choice([30_000] * 9 + [60_000]) + rng.randrange(5_000)) for at in range(8 * 144)]
    return Tuner([series, series[6 * 144 :]], (3_600,))


@pytest.mark.parametrize("name", ["last", "n-sigma"])
def test_the_boldest_setting_that_keeps_the_share_is_chosen(tuner: Tuner, name: str) -> None:
    tuned = tuner.tuned(name, 3_600, _SHARE_PCT)
    settings = settings_of(name)
    at = settings.index(tuned.setting)
    assert tuned.chosen_pct <= _SHARE_PCT
    assert tuner.tried(settings[at - 1]).broken_pct[3_600] > _SHARE_PCT
    assert 0 < tuned.kept.promised_pct < 100


def test_the_formula_alone_and_the_core_of_the_service_say_the_same(tuner: Tuner) -> None:
    """Samples are further apart than a number stays in force, so that no threshold of publishing keeps an older one."""
    setting = Setting("n-sigma:1.5", 4)
    assert tuner.tried(setting).promised_pct == pytest.approx(tuner.reported(setting).promised_pct, rel=0.05)


def test_settings_go_from_bold_to_cautious() -> None:
    assert [str(each) for each in settings_of("n-sigma")[:2]] == ["n-sigma:0 + 0 %", "n-sigma:0.25 + 0 %"]
    assert settings_of("periodic")[0] == Setting("periodic", 0)
    assert [each.margin_pct for each in settings_of("last")] == list(range(91))
