"""Rotary frequencies against transformers' own functions."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import Unsupported
from engine.layers.rope import frequencies, table

YARN = {"rope_type": "yarn", "rope_theta": 100000.0, "factor": 8.0, "original_max_position_embeddings": 8192}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    "rope",
    [
        YARN,
        {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
        {**YARN, "attention_factor": 1.25},
        {**YARN, "mscale": 0.7, "mscale_all_dim": 1.1},
        {**YARN, "partial_rotary_factor": 0.5},
        LLAMA3,
    ],
)
def test_scaled_frequencies_are_those_of_transformers(rope):
    config = LlamaConfig(hidden_size=576, num_attention_heads=9, max_position_embeddings=65536, rope_parameters=rope)
    expected, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
    found, found_factor = frequencies(config.to_dict(), 64)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    assert found_factor == pytest.approx(factor, rel=1e-12)


def test_older_configs_spread_the_same_values_over_other_keys():
    older = {"rope_theta": 100000.0, "rope_scaling": {**YARN, "type": "yarn"}, "max_position_embeddings": 65536}
    del older["rope_scaling"]["rope_type"]
    newer = {"rope_parameters": YARN, "max_position_embeddings": 65536}
    assert torch.equal(frequencies(older, 64)[0], frequencies(newer, 64)[0])


def test_the_table_holds_cosines_and_sines_of_every_position():
    rope = table({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}, 8, 5)
    assert rope.cos.shape == rope.sin.shape == (5, 4)
    angle = torch.tensor(3.0) / 10000.0 ** (2 / 8)
    torch.testing.assert_close((rope.cos[3, 1], rope.sin[3, 1]), (angle.cos(), angle.sin()))


def test_an_unknown_scaling_is_refused_by_name():
    with pytest.raises(Unsupported, match="longrope"):
        frequencies({"rope_parameters": {"rope_type": "longrope"}}, 64)
