"""`dir(imir_detect)` is the API table: every name is there, loads, and is documented."""

import pytest

import imir_detect


def test_every_public_name_loads_and_is_documented() -> None:
    assert dir(imir_detect) == sorted(imir_detect.__all__)
    for name in imir_detect.__all__:
        value = getattr(imir_detect, name)
        assert name == "__version__" or value.__doc__


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'detect'"):
        _ = imir_detect.detect  # type: ignore[attr-defined]
