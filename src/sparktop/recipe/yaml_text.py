"""YAML as people write it: several lines as a block, nothing folded."""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

_NEEDS_QUOTES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\xa0\u2028\u2029\ufeff]")
"""Characters that YAML folds or takes for a line end."""


class _Dumper(yaml.SafeDumper):
    """YAML dumper that keeps texts of several lines readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _NEEDS_QUOTES.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dumped(data: Mapping[str, object]) -> str:
    """The YAML text of a mapping, in its order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=110, allow_unicode=True)
