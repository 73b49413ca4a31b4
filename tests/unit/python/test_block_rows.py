"""The corpus of the block table's fuzzer is what its script makes."""

import os

from block_rows import ROWS, crc32c
from ranks_of import SOURCE

KEPT = os.path.join(SOURCE, "tests", "fuzz", "corpus", "fuzz_block_table")


def test_the_polynomial_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283


def test_each_row_is_kept_for_the_fuzzer():
    assert sorted(os.listdir(KEPT)) == sorted(ROWS)
    for name, blob in ROWS.items():
        with open(os.path.join(KEPT, name), "rb") as file:
            assert file.read() == b"\0" + blob, name
