"""Docker's options, from one table (docker_options.toml) for all who read, write or change them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOption:
    """One option of `docker run`, and where else it stands; the file says what each field means."""

    name: str
    form: str
    """The type of its value in HostConfig: text, number, switch, list, table; "container" for what isn't there."""
    key: str = ""
    config: str = ""
    compose: str = ""
    recipe: str = ""
    short: str = ""
    alias: str = ""
    defaults: tuple[object, ...] = ()
    same: str = ""
    whole: bool = False
    own: bool = False

    @property
    def takes_value(self) -> bool:
        return self.form != "switch"


@cache
def _table() -> tuple[tuple[DockerOption, ...], Mapping[str, str]]:
    import tomllib  # first paint reads no options

    table = tomllib.loads(Path(__file__).with_name("docker_options.toml").read_text("utf-8"))
    api = {key: form for form, keys in table.pop("api").items() for key in keys}
    options = tuple(
        DockerOption(name=name, form=form, **{**row, "defaults": tuple(row.get("defaults", ()))})
        for form, rows in table.items()
        for name, row in rows.items()
    )
    return options, api


@cache
def by_name() -> Mapping[str, DockerOption]:
    """By their long names, aliases and single letters, without dashes."""
    return {name: option for option in _table()[0] for name in (option.name, option.alias, option.short) if name}


@cache
def by_compose_key() -> Mapping[str, DockerOption]:
    """By their keys in a compose file."""
    return {option.compose: option for option in _table()[0] if option.compose}


@cache
def by_host_key() -> Mapping[str, DockerOption]:
    """By their names in HostConfig, those without an option of `docker run` too."""
    options, api = _table()
    return {option.key: option for option in options if option.key} | {
        key: DockerOption(name="", form=form, key=key, whole=form == "list") for key, form in api.items()
    }
