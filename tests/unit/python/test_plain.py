"""Plain values survive exactly, or are refused by the path of their key."""

import collections
import json
import math
import struct

import numpy
import pytest

import rondo
from rondo import _plain


def travel(value):
    return _plain.decode(json.loads(json.dumps(_plain.encode(value), allow_nan=False)))


VALUES = [
    None, True, False, 0, -1, 1 << 53, (1 << 63) - 1, -(1 << 63), 1 << 63, -(1 << 200), 0.0, 0.1,
    1e308, 5e-324, math.inf, -math.inf, "", "näh\0\n\"\\\u2028", b"", b"\0\xff", 1 + 2j,
    complex(math.inf, 0.5), [], {}, (), [1, [2.5, ("a", None)]], {"a": {"b": (1, 2)}},
    {1: "x", -2.5: "y", None: 0, True + 1: 2}, {"$int": 5}, {"$": {"$tensor": "x"}},
    {"betas": (0.9, 0.95), "params": ["a", "b"]},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_survive(value):
    found = travel(value)
    assert found == value and repr(found) == repr(value)


def test_floats_survive_to_the_bit():
    for bits in (0x8000000000000000, 1, 0x3FB999999999999A, 0x7FEFFFFFFFFFFFFF):
        (value,) = struct.unpack("<d", struct.pack("<Q", bits))
        assert struct.pack("<d", travel(value)) == struct.pack("<Q", bits)
    assert math.isnan(travel([math.nan])[0])


def test_numbers_of_numpy_are_pythons():
    assert travel({"a": numpy.int64(7), "b": numpy.float32(0.1), "c": numpy.bool_(True)}) == {
        "a": 7, "b": float(numpy.float32(0.1)), "c": True}
    assert math.isinf(travel(numpy.float64("inf")))


def test_counters_and_ordered_dicts():
    counter = travel(collections.Counter({30: 2, 80: 1}))
    assert type(counter) is collections.Counter and sorted(counter.elements()) == [30, 30, 80]
    assert travel(collections.OrderedDict(a=1)) == {"a": 1}


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize("value", [
    object(), {1, 2}, lambda: 0, Point(1, 2), "\ud800", {(1, 2): 3}, numpy.dtype("f4"), range(3),
    numpy.datetime64("2020-01-01T00:00:00.000000001"),
], ids=lambda value: type(value).__name__)
def test_what_cannot_be_saved_is_refused_by_its_path(value):
    with pytest.raises(rondo.Unsaveable, match=r"^a\.0\.b"):
        _plain.encode({"a": [{"b": value}]})


def test_what_holds_itself_is_refused():
    value = {}
    value["a"] = value
    with pytest.raises(rondo.Unsaveable, match="nested deeper"):
        _plain.encode(value)


def test_unknown_tags_are_refused():
    with pytest.raises(ValueError, match="nothing"):
        _plain.decode({"$nothing": 1})
