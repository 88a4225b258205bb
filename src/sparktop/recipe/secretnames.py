"""Which settings are secrets, by their names and by what they look like. Pure."""

from __future__ import annotations

from sparktop.probe.remote import is_secret_name, mask_text


def is_secret(name: str, value: str) -> bool:
    """Whether a variable, label or option of this name and value is not to be shown."""
    is_named = is_secret_name(name) or name.upper().endswith(("KEY", "KEYS"))
    return bool(value) and (is_named or mask_text(value) != value)
