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


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("engine_args", "foo", "write a JSON object"),
        ("engine_args", "[1]", "must be a JSON object"),
        ("engine_args", "[" * 100_000, "write a JSON object"),
        ("volatile_lines", "^Date:", "write a JSON list"),
        ("cors_origins", "[http://x", "write a JSON list"),
        ("api_keys", '["sk-secret', "write a JSON list"),
        ("media_allowed_hosts", "[1]", "valid string"),
        ("served_model_name", ",", "at least one name"),
    ],
)
def test_a_list_or_object_that_is_none_is_refused_with_what_to_write(
    name: str, value: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("K3_CONFIG", raising=False)
    monkeypatch.setenv(f"K3_{name.upper()}", value)
    with pytest.raises(SettingsError, match=f"setting {name}: .*{remedy}.*K3_{name.upper()}") as refused:
        load_settings()
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["", " ", "é..x", "a\0b"])
def test_a_host_that_is_no_name_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("K3_CONFIG", raising=False)
    with pytest.raises(SettingsError, match=r"setting host: .*--host"):
        load_settings(host=host)
    assert load_settings(host="::1").host == "::1"


def test_lists_may_be_written_with_commas_or_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("K3_CONFIG", raising=False)
    monkeypatch.setenv("K3_CORS_ORIGINS", "http://a, http://b")
    monkeypatch.setenv("K3_MEDIA_ALLOWED_HOSTS", '["10.0.0.0/8"]')
    monkeypatch.setenv("K3_MEDIA_FILE_ROOTS", "/pictures,/clips")
    monkeypatch.setenv("K3_SERVED_MODEL_NAME", '["k3", "kimi"]')
    monkeypatch.setenv("K3_ENGINE_ARGS", '{"max_model_len": 8192}')
    monkeypatch.setenv("K3_VOLATILE_LINES", '["^Date: "]')
    monkeypatch.setenv("K3_API_KEYS", "one\ntwo")
    settings = load_settings()
    assert settings.cors_origins == ["http://a", "http://b"]
    assert settings.media_allowed_hosts == ["10.0.0.0/8"]
    assert settings.media_file_roots == [Path("/pictures"), Path("/clips")]
    assert settings.served_model_name == ["k3", "kimi"]
    assert settings.engine_args == {"max_model_len": 8192}
    assert settings.volatile_lines == ["^Date: "]
    assert [key.get_secret_value() for key in settings.api_keys] == ["one", "two"]


def test_a_secret_file_that_is_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("K3_CONFIG", raising=False)
    monkeypatch.setenv("K3_SECRETS_FOLDER", str(tmp_path))
    (tmp_path / "k3_api_keys").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="k3_api_keys is not readable UTF-8 text"):
        load_settings()
    (tmp_path / "k3_api_keys").write_text("sk-1")
    assert len(load_settings().api_keys) == 1
