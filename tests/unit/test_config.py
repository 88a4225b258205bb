"""The configuration file: what it may say, and how a mistake is told."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop import config
from sparktop.errors import ConfigError


def write(text: str, path: Path) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_no_file_means_the_defaults() -> None:
    assert config.load() == config.Config()


def test_the_file_under_xdg_is_read() -> None:
    config.config_home().mkdir(parents=True)
    write('hosts = ["spark1", "spark2"]\ninterval_s = 2\nread_only = true\n', config.config_home() / "config.toml")
    assert config.load() == config.Config(hosts=("spark1", "spark2"), interval_s=2.0, read_only=True)


@over(
    "text, said",
    [
        ("intervall_s = 2", "did you mean `interval_s`?"),
        ("zebra = 2", "known keys:"),
        ("interval_s = 0.01", "out of range"),
        ("interval_s = 'fast'", "number of seconds"),
        ("read_only = 'yes'", "true or false"),
        ("hosts = 'spark1'", "list of names"),
        ("hosts = [1]", "list of names"),
        ("notify = 'bell'", "list of texts"),
        ("notify = ['toats']", "it has toast, bell"),
        ("notify_command = 'notify-send'", "list of texts"),
        ("notify_command = ['notify-send', '{tilte}']", "knows no {tilte}"),
        ("notify_command = ['']", "names no program"),
        ("theme = 3", "text in quotes"),
        ("protected = ['spark1']", "unknown key `protected`"),
        ("hots = {}", "did you mean `host"),
        ("host = 'spark1'", "a table for each host"),
        ("host = {spark1 = true}", '[host."spark1"]'),
        ("[host.spark1]\nprotectd = true", "did you mean `protected`?"),
        ("[host.spark1]\nprotected = 'yes'", "true or false"),
        ("[host.spark1]\ndocker_socket = 'docker.sock'", "a path on that host"),
        ("[host.spark1]\ndocker_socket = true", "a path on that host"),
        ("[host.spark1]\ndocker_sockets = '/run/docker.sock'", "did you mean `docker_socket`?"),
        ("[host.spark1.lan]\nprotected = true", 'wants quotes: [host."spark1.lan"]'),
        ("theme = ", "Invalid value"),
    ],
)
def test_a_mistake_names_the_file_and_what_to_do(text: str, said: str, tmp_path: Path) -> None:
    file = write(text, tmp_path / "config.toml")
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path / "absent.toml")


def test_resources_are_found_in_the_checkout() -> None:
    assert config.resource_dir("styles").is_dir()
    with pytest.raises(ConfigError, match="missing"):
        config.resource_dir("no-such-files")


def test_a_place_is_shown_as_a_shell_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.shown(config.config_home() / ".env") == "~/.config/sparktop/.env"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/of mine")
    assert config.shown(config.config_home() / ".env") == "'/etc/of mine/sparktop/.env'"
    assert config.shown(Path.home() / "a b" / "c") == "~/'a b/c'"
    assert config.shown(Path.home()) == str(Path.home())
    assert config.shown(Path("/a\x1b[2Jb")).isprintable()


def test_how_to_be_told() -> None:
    config.config_home().mkdir(parents=True)
    text = 'notify = []\nnotify_command = ["notify-send", "{title}", "{{}}"]\n'
    write(text, config.config_home() / "config.toml")
    read = config.load()
    assert (read.notify, read.notify_command) == ((), ("notify-send", "{title}", "{{}}"))


def test_rule_files_are_read_in_the_order_of_their_names() -> None:
    assert config.user_rule_files() == ()
    folder = config.config_home() / "rules"
    folder.mkdir(parents=True)
    for name in ("b.toml", "a.toml", "notes.txt"):
        write(f"# {name}", folder / name)
    assert [(Path(path).name, text) for path, text in config.user_rule_files()] == [
        ("a.toml", "# a.toml"),
        ("b.toml", "# b.toml"),
    ]


@pytest.mark.parametrize(
    ("raw", "said"), [(b"\xff\xfe", "decode"), (b"#" * (config.MAX_RULE_FILE_BYTES + 1), "larger than")]
)
def test_a_rule_file_that_is_no_text_is_named(raw: bytes, said: str) -> None:
    folder = config.config_home() / "rules"
    folder.mkdir(parents=True)
    (folder / "bad.toml").write_bytes(raw)
    with pytest.raises(ConfigError, match=said) as caught:
        config.user_rule_files()
    assert "bad.toml" in str(caught.value)


def test_protected_hosts_are_known_by_the_names_that_are_typed(tmp_path: Path) -> None:
    text = (
        '[host.spark1]\nprotected = true\n[host."me@spark2.lan:2222"]\nprotected = true\n'
        "[host.spark3]\nprotected = false\n"
    )
    assert config.load(write(text, tmp_path / "config.toml")).protected == ("spark1", "me@spark2.lan:2222")


def test_a_docker_engine_may_listen_elsewhere_on_a_host(tmp_path: Path) -> None:
    text = '[host.spark1]\ndocker_socket = "/run/user/1000/docker.sock"\n[host.spark2]\nprotected = true\n'
    loaded = config.load(write(text, tmp_path / "config.toml"))
    assert loaded.docker_sockets == {"spark1": "/run/user/1000/docker.sock"}
    assert loaded.protected == ("spark2",)


@over(
    "text",
    [
        "interval_s = " + "9" * 400,
        "interval_s = " + "9" * 5000,
        "interval_s = nan",
        "hosts = " + "[" * 5000,
        "a = 1e999",
    ],
)
def test_figures_and_nesting_out_of_bounds_are_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        config.load(write(text, tmp_path / "config.toml"))


KEYS = st.sampled_from(
    [
        "hosts",
        "interval_s",
        "read_only",
        "notify",
        "notify_command",
        "theme",
        "host",
        "x",
        "protected",
        "watch",
        "target",
    ]
)
VALUES = st.recursive(
    st.sampled_from(["1", "nan", "-inf", "9" * 400, "0.5", "true", '"a"', "'{title}'", "[]", "{}", "07:32:00", '"/x"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.tuples(KEYS, inner).map(lambda pair: f"{{ {pair[0]} = {pair[1]} }}")
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=4) | st.text(max_size=40))
def test_any_file_is_read_or_refused(rows: list[tuple[str, str]] | str) -> None:
    text = rows if isinstance(rows, str) else "".join(f"{key} = {value}\n" for key, value in rows)
    with tempfile.TemporaryDirectory() as folder:
        try:
            config.load(write(text, Path(folder, "config.toml")))
        except (ConfigError, UnicodeEncodeError):
            pass


def test_a_watcher_has_its_targets(tmp_path: Path) -> None:
    text = """
[watch]
least = "critical"
heartbeat_s = 86400
quiet = "22:30-07:00"
[watch.target.phone]
kind = "ntfy"
url = "https://ntfy.sh/x"
events = ["new", "worse"]
[watch.target.mail]
kind = "mail"
to = ["me@example.org"]
from = "sparktop@example.org"
"""
    watch = config.load(write(text, tmp_path / "config.toml")).watch
    assert (watch.least, watch.heartbeat_s, watch.quiet) == ("critical", 86400, (22 * 60 + 30, 7 * 60))
    assert [(target.name, target.kind, len(target.events)) for target in watch.targets] == [
        ("phone", "ntfy", 2),
        ("mail", "mail", 5),
    ]
    assert "ntfy.sh" not in repr(watch)


@over(
    "text, said",
    [
        ("watch = 1", "wants a table"),
        ("[watch]\nleats = 'x'", "did you mean `least`?"),
        ("[watch]\nleast = 'info'", "warning"),
        ("[watch]\nheartbeat_s = 5", "60 to 604800"),
        ("[watch]\nquiet = '22-7'", 'as "22:00-07:00"'),
        ("[watch]\nmost_per_hour = 0", "from 1 to 1000"),
        ("[watch]\ntarget = 1", "a table for each target"),
        ("[watch.target.a]\nkind = 'teams'", "json, ntfy, slack"),
        ("[watch.target.a]\nkind = 'json'", "one of `url`"),
        ("[watch.target.a]\nkind = 'json'\nurl = \"http://SECRET\\n\"", "on one line"),
        ("[watch.target.a]\nkind = 'json'\nurl = ['http://SECRET']", "text in quotes"),
        ("[watch.target.a]\nkind = 'json'\nurls = 'http://SECRET'", "did you mean `url`?"),
        ("[watch.target.a]\nkind = 'json'\nurl = 'http://h'\nevents = ['all']", "knows no 'all'"),
        ("[watch.target.a]\nkind = 'json'\nurl = 'http://h'\ntoken = 'SECRET'", "token_env"),
        ("[watch.target.a]\nkind = 'command'\ncommand = 'page'", "list of texts"),
        ("[watch.target.a]\nkind = 'command'", "has no `command`"),
        ("[watch.target.a]\nkind = 'mail'\nto = ['a@b']", "has no `from`"),
        ("[watch.target.a]\nkind = 'mail'\nto = ['a@b']\nfrom = 'a@b'\nuser = 'me'", "password_file"),
        ("[watch.target.a]\nkind = 'mail'\nto = ['a@b']\nfrom = 'a@b'\npassword = 'SECRET'", "password_env"),
    ],
)
def test_a_mistake_in_a_watchers_table_is_named_and_shows_no_secret(text: str, said: str, tmp_path: Path) -> None:
    file = write(text, tmp_path / "config.toml")
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    assert said in str(caught.value)
    assert "SECRET" not in str(caught.value)
