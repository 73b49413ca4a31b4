"""A small safetensors file for each rule of the format, and a reader of such files that shares
nothing with ours: standard library alone. `safetensors_rows.py DIR` writes the rows as inputs of
tests/fuzz/fuzz_safetensors."""

import json
import os
import struct
import sys

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8,
        "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16,
        "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
        "U64": 64}
HEADER_MAX = 100_000_000


class Refused(ValueError):
    """The file is not as it must be."""


def must(condition, why):
    if not condition:
        raise Refused(why)


def members(pairs):
    found = dict(pairs)
    must(len(found) == len(pairs), "a key is there twice")
    return found


def number(digits):
    must(not digits.startswith("-") and len(digits) <= 20 and int(digits) < 2 ** 64, "number")
    return int(digits)


def no_number(text):
    raise Refused(f"number {text}")


def is_text(value):
    must(isinstance(value, str), "no text")
    value.encode("utf-8")  # no lone surrogates
    return True


def numbers(value):
    must(isinstance(value, list) and all(type(item) is int for item in value), "no numbers")
    return value


def size_of(dtype, shape):
    elements = 1
    for dim in shape:  # in this order: a product may be too large before it is 0
        elements *= dim
        must(elements < 2 ** 64, "too many elements")
    bits = elements * BITS[dtype]
    must(bits < 2 ** 64 and bits % 8 == 0, "no whole bytes")
    return bits // 8


def tensor(name, entry):
    must(is_text(name) and name and "\0" not in name, "name")
    must(isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}, "fields")
    must(isinstance(entry["dtype"], str) and entry["dtype"] in BITS, "dtype")
    shape, offsets = numbers(entry["shape"]), numbers(entry["data_offsets"])
    must(len(offsets) == 2, "offsets")
    begin, end = offsets
    must(end >= begin and end - begin == size_of(entry["dtype"], shape), "size")
    return begin, end, name, entry["dtype"], tuple(shape)


def read(blob):
    """(metadata, [(begin, end, name, dtype, shape), ...] as they lie) of a file; or Refused."""
    must(len(blob) >= 8, "short")
    size = struct.unpack_from("<Q", blob)[0]
    must(size <= HEADER_MAX and size <= len(blob) - 8, "header")
    try:
        header = json.loads(blob[8:8 + size].decode("utf-8"), object_pairs_hook=members,
                            parse_int=number, parse_float=no_number, parse_constant=no_number)
        must(isinstance(header, dict), "no object")
        meta = header.pop("__metadata__", None)
        must(meta is None or isinstance(meta, dict), "metadata")
        for key, value in (meta or {}).items():
            must(is_text(key) and is_text(value), "metadata")
        found = sorted(tensor(name, entry) for name, entry in header.items())
    except (UnicodeError, json.JSONDecodeError, RecursionError) as why:
        raise Refused(str(why)) from why
    at = 0
    for begin, end, *_ in found:
        must(begin == at, "hole or overlap")
        at = end
    must(at == len(blob) - 8 - size, "length")
    return meta or {}, found


def blob_of(header, data=0, size=None):
    raw = header if isinstance(header, bytes) else header.encode("utf-8")
    return struct.pack("<Q", len(raw) if size is None else size) + raw + bytes(range(data))


def entry(dtype="U8", shape="[4]", offsets="[0,4]", name="a", more=""):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def with_shape(shape, dtype="U8", offsets="[0,4]", data=4):
    return blob_of("{" + entry(dtype, shape, offsets) + "}", data)


A, META = entry(), '"__metadata__":'
NESTED = ',"x":' + "[" * 129 + "]" * 129
ROWS = {  # name: (is it taken, the file)
    "no_bytes": (False, b""),
    "seven_bytes": (False, b"\2\0\0\0\0\0\0"),
    "header_past_limit": (False, blob_of("{}", size=HEADER_MAX + 1)),
    "header_past_file": (False, blob_of("{}", size=3)),
    "header_of_2_64": (False, b"\xff" * 8 + b"{}"),
    "no_tensors": (True, blob_of("{}")),
    "metadata_alone": (True, blob_of("{" + META + '{"format":"pt"}}')),
    "empty_header": (False, blob_of("")),
    "one_tensor": (True, blob_of("{" + A + "}", 4)),
    "leading_spaces": (True, blob_of("  {" + A + "}", 4)),
    "trailing_spaces": (True, blob_of("{" + A + "}   ", 4)),
    "trailing_white": (True, blob_of("{" + A + "} \t\r\n", 4)),
    "trailing_nul": (False, blob_of("{" + A + "}\0", 4)),
    "trailing_garbage": (False, blob_of("{" + A + "}x", 4)),
    "byte_order_mark": (False, blob_of("\ufeff{" + A + "}", 4)),
    "name_twice": (False, blob_of("{" + A + "," + A + "}", 4)),
    "name_twice_no_hole": (False, blob_of("{" + entry(offsets="[9,13]") + "," + A + "}", 4)),
    "name_twice_by_escape": (False, blob_of("{" + entry(shape="[0]", offsets="[0,0]") + "," +
                                            entry(name="\\u0061") + "}", 4)),
    "metadata_twice": (False, blob_of("{" + META + "{}," + META + "{}}")),
    "field_twice": (False, blob_of("{" + entry(more=',"dtype":"U8"') + "}", 4)),
    "metadata_key_twice": (False, blob_of("{" + META + '{"a":"1","a":"2"}}')),
    "metadata_null": (True, blob_of("{" + META + "null}")),
    "metadata_number": (False, blob_of("{" + META + '{"a":1}}')),
    "metadata_list": (False, blob_of("{" + META + "[]}")),
    "unknown_field": (False, blob_of("{" + entry(more=',"x":1') + "}", 4)),
    "nested_129": (False, blob_of("{" + entry(more=NESTED) + "}", 4)),
    "entry_as_list": (False, blob_of('{"a":["U8",[4],[0,4]]}', 4)),
    "fraction": (False, with_shape("[4.0]")),
    "exponent": (False, with_shape("[4e0]")),
    "negative": (False, with_shape("[-1]")),
    "minus_zero": (False, with_shape("[-0]", offsets="[0,0]", data=0)),
    "leading_zero": (False, with_shape("[04]")),
    "not_a_number": (False, with_shape("[NaN]")),
    "true_is_no_number": (False, with_shape("[true,4]")),
    "number_2_64": (False, with_shape("[18446744073709551616]")),
    "trailing_comma": (False, blob_of("{" + A + ",}", 4)),
    "trailing_comma_in_shape": (False, with_shape("[4,]")),
    "lone_surrogate": (False, blob_of("{" + entry(name="\\ud800") + "}", 4)),
    "surrogate_pair": (True, blob_of("{" + entry(name="\\ud83d\\ude00") + "}", 4)),
    "raw_control": (False, blob_of("{" + entry(name="a\nb") + "}", 4)),
    "not_utf8": (False, blob_of(b"{" + entry(name="a!").encode().replace(b"!", b"\xff") + b"}",
                                4)),
    "overlong_utf8": (False, blob_of(b"{" + entry(name="a!").encode().replace(b"!", b"\xc0\xaf") +
                                     b"}", 4)),
    "nul_in_name": (False, blob_of("{" + entry(name="a\\u0000b") + "}", 4)),
    "nul_in_metadata": (True, blob_of("{" + META + '{"a":"\\u0000"}}')),
    "empty_name": (False, blob_of("{" + entry(name="") + "}", 4)),
    "path_as_name": (True, blob_of("{" + entry(name="../../etc/x") + "}", 4)),
    "any_unicode": (True, blob_of("{" + entry(name="\u00e9\U0001f600\u200b") + "}", 4)),
    "two_forms_of_one_letter": (True, blob_of(
        "{" + entry(name="\u00e9") + "," + entry(name="e\u0301", offsets="[4,8]") + "}", 8)),
    "bool_of_seven": (True, blob_of("{" + entry("BOOL", "[8]", "[0,8]") + "}", 8)),
    "no_dimension": (True, with_shape("[]", "F32")),
    "no_dimension_too_long": (False, with_shape("[]", "F32", "[0,8]", 8)),
    "empty_at_the_begin": (True, blob_of("{" + entry("F32", "[0,3]", "[0,0]", "z") + "," + A + "}",
                                         4)),
    "empty_at_the_end": (True, blob_of("{" + A + "," + entry("F32", "[3,0]", "[4,4]", "z") + "}",
                                       4)),
    "empty_inside": (False, blob_of("{" + A + "," + entry("F32", "[0]", "[2,2]", "z") + "}", 4)),
    "half_byte": (False, with_shape("[3]", "F4", "[0,1]", 1)),
    "half_byte_odd_up": (False, with_shape("[3]", "F4", "[0,2]", 2)),
    "two_of_four_bits": (True, with_shape("[2]", "F4", "[0,1]", 1)),
    "four_of_six_bits": (True, with_shape("[2,2]", "F6_E3M2", "[0,3]", 3)),
    "complex": (True, with_shape("[2]", "C64", "[0,16]", 16)),
    "unknown_dtype": (False, with_shape("[4]", "F7")),
    "dtype_in_lower_case": (False, with_shape("[4]", "u8")),
    "overflow_before_zero": (False, with_shape("[4294967296,4294967296,0]", offsets="[0,0]",
                                               data=0)),
    "zero_before_overflow": (True, with_shape("[0,4294967296,4294967296]", offsets="[0,0]",
                                              data=0)),
    "hole_at_the_begin": (False, with_shape("[4]", offsets="[1,5]", data=5)),
    "hole_inside": (False, blob_of("{" + A + "," + entry(name="b", offsets="[5,9]") + "}", 9)),
    "overlap": (False, blob_of("{" + A + "," + entry(name="b", offsets="[2,6]") + "}", 6)),
    "backwards": (False, with_shape("[4]", offsets="[4,0]")),
    "one_offset": (False, with_shape("[4]", offsets="[0]")),
    "three_offsets": (False, with_shape("[4]", offsets="[0,4,4]")),
    "one_byte_more": (False, with_shape("[4]", data=5)),
    "one_byte_less": (False, with_shape("[4]", data=3)),
    "size_of_another_shape": (False, with_shape("[5]")),
    "no_shape": (False, blob_of('{"a":{"dtype":"U8","data_offsets":[0,4]}}', 4)),
    "any_order": (True, blob_of("{" + entry(name="b", offsets="[4,8]") + "," + A + "," + META +
                                '{"k":"v"}}', 8)),
    "list_at_the_top": (False, blob_of("[]")),
    "null_at_the_top": (False, blob_of("null")),
}


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, (_, blob) in ROWS.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(b"\0" + blob)


if __name__ == "__main__":
    main()
