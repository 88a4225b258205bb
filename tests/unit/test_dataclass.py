"""Our dataclass behaves as the standard library's does."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest

from sparktop.dataclass import dataclass


def both(**options: Any) -> Any:
    """One class, made by the standard library and by us."""
    return pytest.mark.parametrize(
        "made", [dataclasses.dataclass(**options), dataclass(**options)], ids=["std", "ours"]
    )


class Plain:
    """Has an int, a text that is no part of what is compared, a secret, and a list that can't be hashed."""

    number: int
    text: str = field(default="", compare=False)
    secret: str = field(default="", repr=False)
    parts: list[int] = field(default_factory=list, hash=False)


class One:
    """Has one field."""

    number: float


class Own:
    """Compares and shows itself in its own way."""

    number: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"


def copied(cls: type) -> type:
    return type(cls.__name__, (), {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")})


@both(frozen=True, slots=True, kw_only=True)
def test_a_frozen_class(made: Any) -> None:
    cls = made(copied(Plain))
    one = cls(number=1, secret="s")
    assert one == cls(number=1, text="other", secret="s")
    assert one != cls(number=2, secret="s")
    assert one != cls(number=1, secret="other")
    assert one != cls(number=1, secret="s", parts=[1])
    assert one != (1, "s", [])
    assert hash(one) == hash(cls(number=1, secret="s", parts=[1]))
    assert repr(one) == "Plain(number=1, text='', parts=[])"
    assert dataclasses.replace(one, number=3) == cls(number=3, secret="s")
    assert dataclasses.asdict(one) == {"number": 1, "text": "", "secret": "s", "parts": []}
    assert copy.copy(one) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.number = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.number
    with pytest.raises(TypeError):
        cls(1)


@both(slots=True)
def test_a_class_that_can_change_can_not_be_hashed(made: Any) -> None:
    one = made(copied(Plain))(1)
    one.number = 2
    assert one.number == 2
    with pytest.raises(TypeError):
        hash(one)


@both(frozen=True)
def test_one_field_that_is_not_a_number_is_equal_to_itself(made: Any) -> None:
    cls = made(copied(One))
    assert cls(float("nan")) != cls(float("nan"))
    one = cls(float("nan"))
    assert one == one
    assert hash(cls(1.0)) == hash(cls(1))


@both(frozen=True, slots=True)
def test_its_own_methods_are_kept(made: Any) -> None:
    cls = made(copied(Own))
    assert cls(1) == cls(2)
    assert (hash(cls(1)), repr(cls(1))) == (7, "own")


@both(frozen=True, slots=True, eq=False, repr=False)
def test_without_comparing_each_is_equal_to_itself_alone(made: Any) -> None:
    cls = made(copied(One))
    one = cls(1)
    assert one != cls(1)
    assert len({one, cls(1)}) == 2
    assert "object at" in repr(one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What another class adds to."""

    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Base):
    """Adds a field."""

    second: int = 0


def test_a_derived_class_compares_by_all_its_fields() -> None:
    assert Derived(first=1, second=2) != Derived(first=1, second=3)
    assert Derived(first=1) != Base(first=1)
    assert repr(Derived(first=1)) == "Derived(first=1, second=0)"
    assert pickle.loads(pickle.dumps(Derived(first=1))) == Derived(first=1)
