"""Homes, projects and shells that want an agent elsewhere: settings, logins, helpers, switches, fallbacks and proxies of each.

A file is text, or a table that is written in the format of its name; files of several channels are joined. `{project}` in
either stands for the project's folder. All addresses and keys are made up.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tomlkit

KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "MY_OPENAI_API_KEY",
    "DEEPSEEK_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK", "OPENCODE_API_KEY",
    "CODEX_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "NOUS_API_KEY", "DASHSCOPE_API_KEY",
)  # fmt: skip
ADDRESSES = {
    "ANTHROPIC_BASE_URL": "https://shell.example.com",
    "OPENAI_BASE_URL": "https://shell.example.com/v1",
    "OPENCODE_AUTH_CONTENT": json.dumps({"anthropic": {"type": "api", "key": "sk-real"}}),
    "OPENCLAW_GATEWAY_URL": "ws://shell.example.com",
    "HERMES_INFERENCE_PROVIDER": "openrouter",
}
SWITCHES = {
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "CLAUDE_CODE_USE_FOUNDRY": "1",
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
    "QWEN_DEFAULT_AUTH_TYPE": "qwen-oauth",
    "OPENCODE_CONFIG_CONTENT": json.dumps({"enabled_providers": ["anthropic"]}),
}
PROXY = "http://proxy.example.com:3128"
PROXIES = {"HTTPS_PROXY": PROXY, "http_proxy": PROXY, "ALL_PROXY": PROXY}
HELPER = "touch helper-ran; echo sk-real"


def vendor_token() -> str:
    """A login token of Codex' vendor, unsigned: it is read, never verified, by the client."""
    claims = {
        "exp": 4102444800,
        "https://api.openai.com/auth": {"chatgpt_plan_type": "plus", "chatgpt_account_id": "a"},
    }
    parts = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)
    )
    return ".".join((*parts, "x"))


SECRETS = ["sk-real", "sk-ant-oat01-x", vendor_token()]
CLAUDE_LOGIN = {
    "claudeAiOauth": {"accessToken": "sk-ant-oat01-x", "refreshToken": "r", "expiresAt": 4102444800000, "scopes": []}
}
CODEX_LOGIN = {
    "auth_mode": "chatgpt",
    "tokens": {
        "id_token": vendor_token(), "access_token": vendor_token(), "refresh_token": "r", "account_id": "a",
    },
    "last_refresh": "2026-01-01T00:00:00Z",
}  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    """`changing`: files that the agent itself writes at every start, wherever it is started from."""

    files: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    changing: tuple[str, ...] = ()


SHELL = Hostile(env={**dict.fromkeys(KEYS, "sk-real"), **ADDRESSES})
SWITCHED = Hostile(env={**dict.fromkeys(KEYS[:11], "sk-real"), **SWITCHES})
PROXIED = Hostile(env=PROXIES)


def claude_settings(**settings: Any) -> Hostile:
    return Hostile({".claude/settings.json": settings})


def paid(url: str) -> dict[str, Any]:
    """A provider of OpenCode's."""
    return {"paid": {"options": {"baseURL": url, "apiKey": "sk-real"}, "models": {"x": {}}}}


OPENCODE = {"$schema": "https://opencode.ai/config.json"}  # OpenCode itself adds it where it is missing
QWEN = {"$version": 4}  # Qwen Code does the same
CHANNELS: dict[str, dict[str, Hostile]] = {
    "claude": {
        "settings": claude_settings(
            model="claude-opus-5",
            env={"ANTHROPIC_BASE_URL": "https://user.example.com", "ANTHROPIC_API_KEY": "sk-real"},
        ),
        "project": Hostile(
            {
                "project/.claude/settings.json": {"env": {"ANTHROPIC_BASE_URL": "https://project.example.com"}},
                "project/.claude/settings.local.json": {
                    "env": {"ANTHROPIC_AUTH_TOKEN": "sk-real", "ANTHROPIC_CUSTOM_HEADERS": "x-key: sk-real"}
                },
            }
        ),
        "shell": SHELL,
        "switches": Hostile({"project/.claude/settings.json": {"env": {"CLAUDE_CODE_USE_VERTEX": "1"}}}, SWITCHED.env),
        "helpers": claude_settings(
            apiKeyHelper=HELPER, awsAuthRefresh=HELPER, awsCredentialExport=HELPER, otelHeadersHelper=HELPER
        ),
        "logins": Hostile(
            {
                ".claude/.credentials.json": CLAUDE_LOGIN,
                ".claude.json": {"hasCompletedOnboarding": True, "primaryApiKey": "sk-real"},
            },
            changing=(".claude.json",),
        ),
        "fallbacks": claude_settings(fallbackModel=["claude-opus-5"]),
        "proxies": Hostile(
            {".claude/settings.json": {"env": {"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "NO_PROXY": ""}}}, PROXIES
        ),
    },
    "codex": {
        "settings": Hostile(
            {
                ".codex/config.toml": {
                    "model_provider": "paid",
                    "model": "gpt-9",
                    "model_providers": {"paid": {"name": "paid", "base_url": "https://user.example.com/v1"}},
                    "projects": {"{project}": {"trust_level": "trusted"}},
                }
            }
        ),
        "project": Hostile(
            {
                "project/.codex/config.toml": {
                    "model_provider": "other",
                    "model_providers": {"other": {"name": "other", "base_url": "https://project.example.com/v1"}},
                },
                ".codex/config.toml": {"projects": {"{project}": {"trust_level": "trusted"}}},
            }
        ),
        "shell": SHELL,
        "switches": Hostile({".codex/config.toml": {"model_provider": "amazon-bedrock"}}, SWITCHED.env),
        "helpers": Hostile(
            {
                ".codex/config.toml": {
                    "model_provider": "paid",
                    "model_providers": {
                        "paid": {
                            "name": "paid",
                            "base_url": "https://user.example.com/v1",
                            "auth": {"command": "sh", "args": ["-c", HELPER]},
                        }
                    },
                }
            }
        ),
        "logins": Hostile({".codex/auth.json": CODEX_LOGIN}),
        "proxies": PROXIED,
    },
    "opencode": {
        "settings": Hostile(
            {
                ".config/opencode/opencode.json": {
                    **OPENCODE,
                    "model": "paid/x",
                    "provider": paid("https://user.example.com/v1"),
                    "agent": {"build": {"model": "paid/x"}},
                },
                ".opencode/opencode.json": {
                    **OPENCODE,
                    "model": "paid/x",
                    "enabled_providers": ["paid"],
                    "provider": {**paid("https://user.example.com/v1"), "ft": {"options": {"apiKey": "sk-real"}}},
                },
            }
        ),
        "project": Hostile(
            {
                "project/opencode.json": {
                    **OPENCODE,
                    "model": "paid/x",
                    "provider": {
                        **paid("https://project.example.com/v1"),
                        "ft": {"options": {"baseURL": "https://project.example.com/v1"}},
                    },
                }
            }
        ),
        "shell": SHELL,
        "switches": Hostile(
            {
                "project/opencode.json": {
                    **OPENCODE,
                    "provider": paid("https://project.example.com/v1"),
                    "enabled_providers": ["paid"],
                    "disabled_providers": ["ft"],
                }
            },
            SWITCHED.env,
        ),
        "helpers": Hostile(
            {
                "project/opencode.json": {
                    **OPENCODE,
                    "provider": {"paid": {"options": {"apiKey": "{file:~/key.txt}"}, "models": {"x": {}}}},
                },
                "key.txt": "sk-real\n",
            }
        ),
        "logins": Hostile(
            {
                ".local/share/opencode/auth.json": {
                    "anthropic": {"type": "api", "key": "sk-real"},
                    "https://company.example.com": {"type": "wellknown", "key": "COMPANY", "token": "sk-real"},
                }
            }
        ),
        "fallbacks": Hostile(
            {
                "project/opencode.json": {
                    **OPENCODE,
                    "small_model": "paid/x",
                    "provider": paid("https://project.example.com/v1"),
                }
            }
        ),
        "proxies": PROXIED,
    },
    "pi": {
        "settings": Hostile(
            {
                ".pi/agent/settings.json": {"defaultProvider": "anthropic", "defaultModel": "claude-opus-4-7"},
                ".pi/agent/models.json": {
                    "providers": {"ft": {"baseUrl": "https://user.example.com/v1", "apiKey": "sk-real"}}
                },
            }
        ),
        "project": Hostile({"project/.pi/settings.json": {"defaultProvider": "openai", "defaultModel": "gpt-9"}}),
        "shell": SHELL,
        "switches": SWITCHED,
        "helpers": Hostile({".pi/agent/models.json": {"providers": {"ft": {"apiKey": f"!{HELPER}"}}}}),
        "logins": Hostile({".pi/agent/auth.json": {"anthropic": {"type": "api_key", "key": "sk-real"}}}),
        "proxies": PROXIED,
    },
    "openclaw": {
        "settings": Hostile(
            {
                ".openclaw/openclaw.json": {
                    "models": {"providers": {"paid": {"baseUrl": "https://user.example.com/v1", "apiKey": "sk-real"}}},
                    "agents": {"defaults": {"model": {"primary": "paid/x"}}},
                },
                ".openclaw/.env": "OPENAI_API_KEY=sk-real\nOPENAI_BASE_URL=https://user.example.com/v1\n",
            }
        ),
        "project": Hostile(
            {"project/.env": "OPENAI_API_KEY=sk-real\nOPENAI_BASE_URL=https://project.example.com/v1\n"}
        ),
        "shell": SHELL,
        "switches": SWITCHED,
        "logins": Hostile(
            {
                ".claude/.credentials.json": CLAUDE_LOGIN,
                ".codex/auth.json": CODEX_LOGIN,
                ".openclaw/agents/main/agent/auth-profiles.json": {
                    "version": 1,
                    "profiles": {"anthropic:default": {"type": "api_key", "provider": "anthropic", "key": "sk-real"}},
                },
            }
        ),
        "fallbacks": Hostile(
            {
                ".openclaw/openclaw.json": {
                    "agents": {"defaults": {"model": {"fallbacks": ["paid/y", "anthropic/claude-opus"]}}}
                }
            }
        ),
        "proxies": PROXIED,
    },
    "qwen": {
        "settings": Hostile(
            {
                ".qwen/settings.json": {
                    **QWEN,
                    "security": {"auth": {"selectedType": "qwen-oauth"}},
                    "model": {"name": "paid", "generationConfig": {"timeout": 1}},
                    "modelProviders": {
                        "openai": [{"id": "paid", "baseUrl": "https://user.example.com/v1", "envKey": "PAID_KEY"}]
                    },
                    "env": {"OPENAI_BASE_URL": "https://user.example.com/v1"},
                }
            }
        ),
        "project": Hostile(
            {
                "project/.qwen/settings.json": {**QWEN, "model": {"name": "paid"}},
                "project/.env": "OPENAI_API_KEY=sk-real\nOPENAI_BASE_URL=https://project.example.com/v1\n",
            }
        ),
        "shell": SHELL,
        "switches": SWITCHED,
        "logins": Hostile({".qwen/oauth_creds.json": {"access_token": "sk-real", "expiry_date": 4102444800000}}),
        "fallbacks": Hostile(
            {".qwen/settings.json": {**QWEN, "fastModel": "paid", "visionModel": "paid", "modelFallbacks": "paid"}}
        ),
        "proxies": Hostile({"project/.qwen/settings.json": {**QWEN, "proxy": PROXY}}, PROXIES),
    },
    "hermes": {
        "settings": Hostile(
            {
                ".hermes/config.yaml": {"model": {"default": "paid", "provider": "openrouter"}},
                ".hermes/.env": "OPENROUTER_API_KEY=sk-real\nOPENAI_API_KEY=sk-real\n",
            }
        ),
        "project": Hostile(
            {"project/.env": "OPENAI_API_KEY=sk-real\nOPENAI_BASE_URL=https://project.example.com/v1\n"}
        ),
        "shell": SHELL,
        "switches": SWITCHED,
        "logins": Hostile(
            {
                ".hermes/auth.json": {"providers": {"nous": {"access_token": "sk-real"}}},
                ".claude/.credentials.json": CLAUDE_LOGIN,
                ".codex/auth.json": CODEX_LOGIN,
            }
        ),
        "fallbacks": Hostile(
            {".hermes/config.yaml": {"fallback_providers": [{"provider": "anthropic", "model": "paid"}]}}
        ),
        "proxies": PROXIED,
    },
}
# What has no entry above cannot be: Codex and pi have no setting that names another model for when one fails; OpenClaw's,
# Qwen Code's and Hermes' helpers of keys are settings of their own configuration, which a launch replaces whole.
IMPOSSIBLE = {
    "codex": {"fallbacks"},
    "pi": {"fallbacks"},
    "openclaw": {"helpers"},
    "qwen": {"helpers"},
    "hermes": {"helpers"},
}
KINDS = {"settings", "project", "shell", "switches", "helpers", "logins", "fallbacks", "proxies"}


def everything(agent: str) -> Hostile:
    """All channels of an agent at once."""
    files: dict[str, Any] = {}
    env: dict[str, str] = {}
    changing: tuple[str, ...] = ()
    for hostile in CHANNELS[agent].values():
        for path, content in hostile.files.items():
            files[path] = _joined(files.get(path, {}), content) if isinstance(content, Mapping) else content
        env.update(hostile.env)
        changing += hostile.changing
    return Hostile(files, env, changing)


def text_of(path: str, content: Any, project: str) -> str:
    if isinstance(content, Mapping):
        content = _placed(content, project)
        return tomlkit.dumps(content) if path.endswith(".toml") else json.dumps(content, indent=2)
    return str(content).replace("{project}", project)


def _placed(value: Any, project: str) -> Any:
    if isinstance(value, Mapping):
        return {key.replace("{project}", project): _placed(inner, project) for key, inner in value.items()}
    return value


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(first)
    for key, value in second.items():
        before = joined.get(key)
        joined[key] = _joined(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return joined
