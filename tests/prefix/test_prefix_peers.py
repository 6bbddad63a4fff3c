"""The models of other engines, on sequences whose states can be placed by hand."""

from array import array

from engine.bench.peers import Sent, computed


def sent(length, reply, users=(), tail=0):
    """The tokens 0, 1, 2 …; the last `tail` of them are others."""
    tokens = [*range(length - tail), *range(10**6 + length, 10**6 + length + tail)]
    return Sent(array("I", tokens), array("I", range(length, length + reply)), users)


def test_sglang_goes_on_behind_a_chunk_on_its_grid_or_in_a_reply():
    assert computed("sglang", [sent(600, 100), sent(900, 9)]) == [600, 900 - 576]
    assert computed("sglang", [sent(600, 300), sent(1200, 9)]) == [600, 1200 - 768]
    assert computed("sglang", [sent(9000, 9), sent(9100, 9, tail=200)])[1] == 9100 - 8192
    forked = [sent(600, 9), sent(500, 9, tail=200), sent(480, 9, tail=180)]
    assert computed("sglang", forked) == [600, 500, 480 - 256], "the second one left a state where it forked"


def test_vllm_goes_on_at_a_block():
    assert computed("vllm", [sent(3000, 500), sent(3600, 9)]) == [3000, 3600 - 2112]
    assert computed("vllm", [sent(1000, 9), sent(1000, 9)]) == [1000, 1000]
    forked = [sent(4000, 9), sent(4000, 9, tail=1500), sent(4000, 9, tail=1600)]
    assert computed("vllm", forked) == [4000, 4000, 4000 - 2112]


def test_llama_cpp_goes_on_in_its_slot_or_at_a_user_message():
    assert computed("llama_cpp", [sent(3000, 500, (100,)), sent(3600, 9, (100, 3500))]) == [3000, 3600 - 3499]
    back = [sent(3000, 9, (1000,)), sent(3000, 9, (1000,), tail=300), sent(3000, 9, (1000,), tail=2500)]
    assert computed("llama_cpp", back) == [3000, 3000 - 2484, 3000]
    many = [sent(3000, 9, (1000,)), sent(3000, 9, (1000,), tail=1800)]
    assert computed("llama_cpp", many)[1] == 3000 - 1000
