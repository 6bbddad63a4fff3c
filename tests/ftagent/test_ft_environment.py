"""The allow-list: what an agent may not see is named, what it needs stays."""

from hypothesis import given
from hypothesis import strategies as st

from ftagent.launch.environment import filter_environment, looks_like_credential, loopback_past_proxies, mask_urls

PROVIDERS = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
    "COHERE_API_KEY",
    "TOGETHER_API_KEY",
    "FIREWORKS_API_KEY",
    "PERPLEXITY_API_KEY",
    "CEREBRAS_API_KEY",
    "HF_TOKEN",
    "REPLICATE_API_TOKEN",
    "MOONSHOT_API_KEY",
]
CUSTOM = ["MY_OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "DEEPSEEK_API_KEY"]
CLOUD = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"]
SWITCHES = ["CLAUDE_CODE_USE_BEDROCK", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"]
NEEDED = {
    "PATH": "/bin",
    "HOME": "/h",
    "SSH_AUTH_SOCK": "/run/agent",
    "LC_ALL": "C",
    "XDG_RUNTIME_DIR": "/run/user/1",
    "PYTHONPATH": ".",
    "VIRTUAL_ENV": "/v",
    "CONDA_PREFIX": "/c",
    "JAVA_HOME": "/j",
    "GOPATH": "/g",
    "CARGO_HOME": "/ca",
    "NVM_DIR": "/n",
    "DOCKER_HOST": "unix:///d",
    "TMUX": "/tmp/t",
    "TMUX_PANE": "%1",
    "COLORTERM": "truecolor",
    "NO_COLOR": "1",
    "EDITOR": "vi",
    "CODEX_HOME": "/codex",
    "CLAUDE_CONFIG_DIR": "/claude",
    "https_proxy": "http://user:pass@proxy:3128",
}


def test_case_1_credentials_are_dropped_and_named() -> None:
    secrets = {name: "value-of-" + name for name in PROVIDERS + CUSTOM + CLOUD + SWITCHES}
    result = filter_environment({**NEEDED, **secrets, "SOME_PROJECT_FLAG": "1"})
    assert result.kept == NEEDED
    assert result.dropped_credentials == sorted(secrets)


def test_keep_and_scrub() -> None:
    result = filter_environment({"OPENAI_API_KEY": "k", "EDITOR": "vi"}, keep=["OPENAI_API_KEY"], scrub=["EDITOR"])
    assert result.kept == {"OPENAI_API_KEY": "k"}
    assert result.dropped_credentials == []


def test_allowed_families_do_not_carry_secrets() -> None:
    env = {
        "PIP_INDEX_URL": "https://me:pw@index/simple",
        "UV_PUBLISH_TOKEN": "t",
        "CONDA_TOKEN": "x",
        "PIP_TIMEOUT": "9",
    }
    result = filter_environment(env)
    assert result.kept == {"PIP_TIMEOUT": "9"}
    assert result.dropped_credentials == ["CONDA_TOKEN", "PIP_INDEX_URL", "UV_PUBLISH_TOKEN"]


@given(st.from_regex(r"[A-Z]{1,8}_(API_KEY|TOKEN|SECRET|PASSWORD)", fullmatch=True), st.text(max_size=8))
def test_every_key_like_name_is_dropped(name: str, value: str) -> None:
    assert looks_like_credential(name, value)
    assert name not in filter_environment({name: value}).kept


def test_names_that_hold_a_secret_in_any_place_are_listed() -> None:
    secret = ["MYPASSWORD", "DBPASSWD", "APPSECRET_1", "SIGNINGKEY", "mytoken", "CREDENTIALFILE", "NPMTOKEN2"]
    plain = ["TOKENIZERS_PARALLELISM", "KEYBOARD_LAYOUT", "PYTHON_KEYRING_BACKEND", "KEYMAP"]
    result = filter_environment(dict.fromkeys(secret + plain, "x"))
    assert result.dropped_credentials == sorted(secret)
    assert set(result.kept) == {"PYTHON_KEYRING_BACKEND"}


def test_passwords_in_urls_are_masked() -> None:
    assert (
        mask_urls("via http://me:pw@proxy:3128/ and HTTPS://tok@h") == "via http://****@proxy:3128/ and HTTPS://****@h"
    )
    assert mask_urls("http://127.0.0.1:1919/s/x mail a@b.c") == "http://127.0.0.1:1919/s/x mail a@b.c"


def test_a_proxy_never_sees_the_engine() -> None:
    assert loopback_past_proxies({"PATH": "/bin"}) == {}
    both = loopback_past_proxies({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "corp.example,localhost"})
    assert both["no_proxy"] == both["NO_PROXY"] == "corp.example,localhost,127.0.0.1,::1"
