"""Settings from secret files, as containers mount them."""

from pathlib import Path

import pytest

from gateway.settings import SettingsError, load_settings


def keys() -> list[str]:
    return [key.get_secret_value() for key in load_settings().api_keys]


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("K3_SECRETS_FOLDER", str(tmp_path))
    monkeypatch.delenv("K3_API_KEYS", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("alpha\nbeta\n", ["alpha", "beta"]),
        ("alpha", ["alpha"]),
        ('["alpha", "beta"]\n', ["alpha", "beta"]),
        ("alpha, beta", ["alpha", "beta"]),
        ("", []),
        ("\n", []),
    ],
)
def test_api_keys_in_a_file(secrets: Path, content: str, expected: list[str]) -> None:
    (secrets / "k3_api_keys").write_text(content)
    assert keys() == expected


def test_the_environment_is_stronger(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "k3_api_keys").write_text("file")
    monkeypatch.setenv("K3_API_KEYS", "environment")
    assert keys() == ["environment"]


def test_other_secrets_and_missing_folders_do_no_harm(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "hf_token").write_text("hf_x")
    assert keys() == []
    monkeypatch.setenv("K3_SECRETS_FOLDER", str(secrets / "missing"))
    assert keys() == []


def test_a_broken_list_is_named_without_its_content(secrets: Path) -> None:
    (secrets / "k3_api_keys").write_text('["sk-secret", ')
    with pytest.raises(SettingsError, match="api_keys") as error:
        load_settings()
    assert "sk-secret" not in str(error.value)
