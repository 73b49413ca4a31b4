"""Plain values as strict JSON and back, exactly: what JSON cannot say gets a tag ("$float": "nan").

Taken: None, bool, int of any size, float with NaN and infinities, complex, str, bytes, list, tuple,
dict with plain keys, Counter, NumPy scalars (as Python's numbers). Everything else is refused by
the path of its key: no pickle, and nothing is turned into something else in silence.
"""

import base64
import collections
import math

DEPTH_MAX = 60  # a level with a tag is two of JSON, whose readers stop at 128
INT_MAX = 1 << 63


class Unsaveable(TypeError):
    """A value that a checkpoint cannot hold; the text begins with the path of its key."""


def join(path, key):
    return f"{path}.{key}" if path else str(key)


def refuse(path, what):
    raise Unsaveable(f"{path or 'the state'}: {what}")


def encode_text(value, path):
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        refuse(path, "a str with half a surrogate pair is no text")
    return value


def encode_float(value):
    if math.isfinite(value):
        return value
    return {"$float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def encode_scalar(value, path):
    """Of what is no container; NumPy scalars are Python's numbers."""
    if getattr(getattr(value, "dtype", None), "kind", "") in tuple("biufc"):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return encode_text(str(value), path)
    if isinstance(value, int):
        return int(value) if -INT_MAX <= value < INT_MAX else {"$int": str(int(value))}
    if isinstance(value, float):
        return encode_float(float(value))
    if isinstance(value, complex):
        return {"$complex": [encode_float(value.real), encode_float(value.imag)]}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    return refuse(path, f"a {type(value).__module__}.{type(value).__qualname__} cannot be saved")


def encode(value, path="", other=None, depth=0):
    """other(value, path): the encoding of what is not plain (a tensor), or None."""
    if depth > DEPTH_MAX:
        refuse(path, f"nested deeper than {DEPTH_MAX}")
    found = other(value, path) if other else None
    if found is not None:
        return found
    if isinstance(value, collections.Counter):
        return {"$counter": encode_pairs(value, path, other, depth)}
    if isinstance(value, dict):
        plain = all(type(key) is str and not key.startswith("$") for key in value)
        if not plain:
            return {"$dict": encode_pairs(value, path, other, depth)}
        return {encode_text(key, path): encode(inner, join(path, key), other, depth + 1)
                for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        if hasattr(value, "_fields"):
            refuse(path, "a named tuple cannot be saved: it is its class that makes it")
        items = [encode(inner, join(path, at), other, depth + 1) for at, inner in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    return encode_scalar(value, path)


def encode_pairs(value, path, other, depth):
    pairs = []
    for key, inner in value.items():
        if not isinstance(key, (str, int, float, bool, bytes, type(None))):
            refuse(path, f"a key of type {type(key).__qualname__} cannot be saved")
        pairs.append([encode_scalar(key, path), encode(inner, join(path, key), other, depth + 1)])
    return pairs


def decode(value, other=None):
    """other(tag, value): what stands for a tag that is not of plain values."""
    if isinstance(value, list):
        return [decode(inner, other) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, inner),) = value.items()
        if tag.startswith("$"):
            return decode_tag(tag, inner, other)
    return {key: decode(inner, other) for key, inner in value.items()}


def decode_tag(tag, inner, other):
    if tag == "$tuple":
        return tuple(decode(inner, other))
    if tag in ("$dict", "$counter"):
        made = {decode(key): decode(item, other) for key, item in inner}
        return made if tag == "$dict" else collections.Counter(made)
    if tag == "$float":
        return float(inner)
    if tag == "$int":
        return int(inner)
    if tag == "$complex":
        return complex(*decode(inner))
    if tag == "$bytes":
        return base64.b64decode(inner, validate=True)
    if other:
        return other(tag, inner)
    raise ValueError(f"state.json has the tag {tag!r}")
