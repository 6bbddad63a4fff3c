import json
import os
import struct
import zlib

import pytest

from engine.cache.hibernate import Disk
from engine.cache.node import token_array
from engine.cache.segment import Damaged, KvName, Segment, StateName, parse_name, read_segment

TOKENS = token_array(range(100, 140))


def keep(disk, tokens, *cuts):
    """KV of `tokens`, in files that end at `cuts`."""
    for end in cuts:
        start, parent = disk.deepest(tokens, end)
        assert disk.keep_segment(tokens[:end], parent, Segment(start, tokens[start:end], (bytes([end]) * 100,)))


def test_names_say_what_a_file_is():
    kv, state = KvName("a" * 32, "b" * 32, 3, 9), StateName("c" * 32, 12)
    assert parse_name(str(kv)) == kv and parse_name(str(state)) == state
    for other in ("notes.txt", "a-b-1-2.kv", str(kv) + ".tmp", "../" + str(kv)):
        assert parse_name(other) is None


def test_an_index_is_rebuilt_from_names(tmp_path):
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, TOKENS, 10, 25, 40)
    assert disk.keep_state(TOKENS[:25], b"state")
    again = Disk(tmp_path, 1 << 20, "m")
    assert len(again) == 4 and again.size_bytes == disk.size_bytes == sum(
        p.stat().st_size for p in tmp_path.rglob("*-*")
    )
    found = again.find(TOKENS, True)
    assert found.position == 25 and [n.end for n in found.chain] == [10, 25] and set(found.states) == {25}
    assert again.state(found.states[25]) == b"state" and again.segment(found.chain[1]).tokens == TOKENS[10:25]
    assert again.find(TOKENS, False).position == 40
    assert again.deepest(TOKENS, 30)[0] == 25
    assert Disk(tmp_path, 1 << 20, "other").find(TOKENS, False) is None


def test_without_states_a_file_is_used_as_far_as_it_agrees(tmp_path):
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, TOKENS, 10, 40)
    other = token_array([*TOKENS[:33], 7, 7, 7])
    assert disk.find(other, False).position == 33 and disk.find(other, True) is None
    assert disk.find(token_array([1, 2, 3]), False) is None
    assert disk.find(token_array([]), False) is None


def test_a_file_whose_beginning_is_gone_is_no_use(tmp_path):
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, TOKENS, 10, 25, 40)
    disk.keep_state(TOKENS, b"s")
    (middle,) = tmp_path.rglob("*-10-25.kv")
    middle.unlink()
    again = Disk(tmp_path, 1 << 20, "m")
    assert again.find(TOKENS, True) is None and again.find(TOKENS, False).position == 10
    assert len(again) == 1 and len(list(tmp_path.rglob("*-*"))) == 1


def test_a_state_under_another_name_is_refused(tmp_path):
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, TOKENS, 10, 25)
    disk.keep_state(TOKENS[:10], b"ten")
    disk.keep_state(TOKENS[:25], b"more")
    ten, more = (next(tmp_path.rglob(f"*-{n}.state")) for n in (10, 25))
    os.replace(ten, more)
    again = Disk(tmp_path, 1 << 20, "m")
    found = again.find(TOKENS, True)
    assert again.state(found.states[25]) is None and again.damaged == 1 and not more.exists()


def test_a_version_of_another_format_is_refused(tmp_path):
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, TOKENS, 10)
    (path,) = tmp_path.rglob("*.kv")
    data = bytearray(path.read_bytes()[:-4])
    struct.pack_into("<I", data, 4, 99)
    path.write_bytes(bytes(data) + struct.pack("<I", zlib.crc32(data)))
    with pytest.raises(Damaged, match="format"):
        read_segment(path, "m")


def test_a_header_with_wrong_types_is_refused(tmp_path):
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, TOKENS, 10)
    (path,) = tmp_path.rglob("*.kv")
    for header in ([], {"identity": "m"}, {"identity": "m", "start": 0, "tokens": "x", "pages": 3}):
        text = json.dumps(header).encode()
        data = struct.pack("<4sII", b"ftck", 1, len(text)) + text
        path.write_bytes(data + struct.pack("<I", zlib.crc32(data)))
        again = Disk(tmp_path, 1 << 20, "m")
        name = parse_name(path.name)
        assert again.segment(name) is None and not path.exists()


def test_what_others_continue_goes_last(tmp_path):
    disk = Disk(tmp_path, 1200, "m")
    keep(disk, TOKENS, 10, 20)
    disk.keep_state(TOKENS[:10], b"x" * 100)
    times = [disk.find(TOKENS, False).chain]
    other = token_array(range(30))
    for end in (10, 20, 30):
        keep(disk, other, end)
        assert disk.size_bytes <= 1200
    assert disk.find(other, False).position == 30 and times
    left = disk.find(TOKENS, False)
    assert left is None or left.position < 20
    assert not disk.keep_state(other, b"x" * 2000), "larger than the budget"
    assert Disk(tmp_path, 1200, "m").find(other, False).position == 30
