"""Settings that are wrong are named, with where they come from and what was meant."""

from pathlib import Path

import pytest

from gateway.settings import SettingsError, load_settings, unknown_variables


def test_an_unknown_key_of_the_file_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "k3.toml"
    file.write_text("prot = 8001")
    monkeypatch.setenv("K3_CONFIG", str(file))
    with pytest.raises(SettingsError) as refused:
        load_settings(port=None)
    message = str(refused.value)
    assert str(file) in message and "'prot'" in message and "did you mean port?" in message
    assert "--" not in message


def test_only_flags_that_exist_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3_PORT", "x")
    monkeypatch.delenv("K3_CONFIG", raising=False)
    with pytest.raises(SettingsError, match="set by --port, K3_PORT or port in"):
        load_settings(port=None)
    monkeypatch.delenv("K3_PORT")
    monkeypatch.setenv("K3_PIN_CHECK_SECONDS", "-1")
    with pytest.raises(SettingsError, match="set by K3_PIN_CHECK_SECONDS or"):
        load_settings(port=None)


def test_unknown_variables_are_named_with_the_nearest_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("K3_MAX_BODY_BYTE", "K3_PORT", "K3_PATCHES", "K3_CACHE", "K3_SHARED", "KIMI_K3_FP8_PB"):
        monkeypatch.setenv(name, "1")
    (line,) = unknown_variables()
    assert "K3_MAX_BODY_BYTE is" in line and "did you mean K3_MAX_BODY_BYTES?" in line
