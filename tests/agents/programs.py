"""How each agent is started: without a person, with its own home, with loopback as its only network.

Versions are pinned in node/package.json; `make test-agents` installs them. Some need a newer Node than the
machine may have, so Node itself is one of the packages.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MODULES = Path(__file__).with_name("node") / "node_modules"
MODEL = "kimi-k3"
_ARCH = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
_SYSTEM = f"{platform.system().lower()}-{_ARCH}"


@dataclass
class Place:
    """Where an agent runs: its home, the folder that it works in, the address of the service."""

    home: Path
    folder: Path
    url: str
    key: str = "agent-key"
    n_context: int = 400_000

    def write(self, path: str, text: str | dict) -> None:
        """A file of the home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if isinstance(text, str) else json.dumps(text, indent=2))


@dataclass
class Start:
    """A command line and what it needs in the environment."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


Agent = Callable[[Place, str], Start]


def environment(place: Place, start: Start) -> dict[str, str]:
    """All that the program sees of the machine. Proxies that lead nowhere keep it on loopback."""
    nowhere = "http://127.0.0.1:9"
    return {
        "PATH": f"{_node().parent}:{os.environ['PATH']}",
        "HOME": str(place.home),
        "XDG_CONFIG_HOME": str(place.home / ".config"),
        "XDG_DATA_HOME": str(place.home / ".local/share"),
        "XDG_CACHE_HOME": str(place.home / ".cache"),
        "XDG_STATE_HOME": str(place.home / ".local/state"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "CI": "1",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "http_proxy": nowhere,
        "https_proxy": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "DO_NOT_TRACK": "1",
        **start.environment,
    }


def codex(place: Place, task: str) -> Start:
    """OpenAI's Codex, by the Responses API."""
    place.write(
        ".codex/config.toml",
        f"""
model = "{MODEL}"
model_provider = "k3"
model_context_window = {place.n_context}
check_for_update_on_startup = false

[model_providers.k3]
name = "k3"
base_url = "{place.url}/v1"
env_key = "K3_KEY"
wire_api = "responses"

[analytics]
enabled = false

[feedback]
enabled = false
""",
    )
    flags = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"]
    return Start(
        [str(_node()), str(MODULES / "@openai/codex/bin/codex.js"), *flags, task],
        {"K3_KEY": place.key, "CODEX_HOME": str(place.home / ".codex")},
    )


def claude_code(place: Place, task: str) -> Start:
    """Anthropic's Claude Code, by the Messages API."""
    tools = ["Read", "Edit", "Bash(python3:*)"]
    return Start(
        [
            str(MODULES / f"@anthropic-ai/claude-code-{_SYSTEM}/claude"),
            *("-p", task, "--output-format", "stream-json", "--verbose", "--allowedTools", *tools),
        ],
        {
            "ANTHROPIC_BASE_URL": place.url,
            "ANTHROPIC_AUTH_TOKEN": place.key,
            "ANTHROPIC_MODEL": MODEL,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
    )


def kimi_code(place: Place, task: str) -> Start:
    """Moonshot's Kimi Code, by chat completions."""
    place.write(
        ".kimi-code/config.toml",
        f"""
default_model = "k3"
telemetry = false

[providers.k3]
type = "kimi"
base_url = "{place.url}/v1"
api_key = "{place.key}"

[models.k3]
provider = "k3"
model = "{MODEL}"
max_context_size = {place.n_context}
capabilities = ["thinking", "image_in", "video_in"]
""",
    )
    return Start(
        [str(_node()), str(MODULES / "@moonshot-ai/kimi-code/dist/main.mjs"), "-p", task],
        {"KIMI_CODE_HOME": str(place.home / ".kimi-code"), "KIMI_CODE_NO_AUTO_UPDATE": "1"},
    )


def opencode(place: Place, task: str) -> Start:
    """opencode, by chat completions."""
    limits = {"context": place.n_context, "output": 4096}
    place.write(
        ".config/opencode/opencode.json",
        {
            "autoupdate": False,
            "share": "disabled",
            "model": f"k3/{MODEL}",
            "small_model": f"k3/{MODEL}",
            "provider": {
                "k3": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{place.url}/v1", "apiKey": place.key},
                    "models": {
                        MODEL: {
                            "reasoning": True,
                            "tool_call": True,
                            "interleaved": {"field": "reasoning_content"},
                            "limit": limits,
                        }
                    },
                }
            },
            "permission": {"edit": "allow", "bash": "allow"},
        },
    )
    return Start(
        [str(MODULES / f"opencode-{_SYSTEM}/bin/opencode"), "run", task],
        {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        },
    )


def qwen_code(place: Place, task: str) -> Start:
    """Qwen Code, by chat completions."""
    place.write(
        ".qwen/settings.json",
        {
            "security": {"auth": {"selectedType": "openai"}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
        },
    )
    return Start(
        [str(_node()), str(MODULES / "@qwen-code/qwen-code/cli-entry.js"), "--yolo", "-p", task],
        {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": place.key, "OPENAI_MODEL": MODEL},
    )


def pi(place: Place, task: str) -> Start:
    """pi, by chat completions."""
    model = {
        "id": MODEL,
        "reasoning": True,
        "input": ["text", "image"],
        "contextWindow": place.n_context,
        "maxTokens": 32_000,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    provider = {
        "baseUrl": f"{place.url}/v1",
        "api": "openai-completions",
        "apiKey": place.key,
        "models": [model],
    }
    place.write(".pi/agent/models.json", {"providers": {"k3": provider}})
    return Start(
        [
            *(str(_node()), str(MODULES / "@earendil-works/pi-coding-agent/dist/bundle/cli.js")),
            *("-p", "--provider", "k3", "--model", MODEL, task),
        ],
        {"PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(place.home / ".pi/agent")},
    )


def _node() -> Path:
    return MODULES / f"node-{_SYSTEM}" / "bin/node"
