"""Kernel layouts (contract.py, Packed) in plain torch: the readable definition the C++ packer is tested against."""

from __future__ import annotations

import torch

from engine.errors import Unsupported

from .contract import Packed, packed_bytes


def pack(weight: torch.Tensor, format: str) -> torch.Tensor:
    """[n, k] floating-point tensor -> uint8 tensor [packed_bytes(n, k, format)]. Raises Unsupported on another format."""
    n, k = weight.shape
    rows, cols = -(-n // 16) * 16, -(-k // 32) * 32
    padded = torch.zeros(rows, cols)
    padded[:n, :k] = weight.float()
    groups = padded.view(rows // 16, 16, cols)
    if format == "f32":
        return groups.transpose(1, 2).contiguous().view(torch.uint8).flatten()
    if format == "bf16":
        pairs = groups.bfloat16().view(rows // 16, 16, cols // 2, 2)
        return pairs.transpose(1, 2).contiguous().view(torch.uint8).flatten()
    if format == "q8_0":
        blocks = groups.view(rows // 16, 16, cols // 32, 32)
        d = blocks.abs().amax(-1, keepdim=True) / 127
        scaled = blocks * torch.where(d == 0, 0.0, 1.0 / d)
        rounded = torch.sign(scaled) * torch.floor(scaled.abs() + 0.5)
        # 0.5 - ulp rounds up when 0.5 is added to it; GGUF rounds half away from zero exactly
        rounded = torch.where((scaled.abs() - scaled.abs().floor()) < 0.5, scaled.trunc(), rounded)
        quants = rounded.to(torch.int8).view(rows // 16, 16, cols // 32, 8, 4).permute(0, 2, 3, 1, 4)
        scales = d.squeeze(-1).half().transpose(1, 2).contiguous().view(torch.uint8)
        codes = quants.reshape(rows // 16, cols // 32, 512).view(torch.uint8)
        return torch.cat([scales, codes], dim=-1).flatten()
    raise Unsupported(f"no weight format called {format!r}", "Use f32, bf16 or q8_0.")


def unpack(weight: Packed) -> torch.Tensor:
    """The exact fp32 values of a packed matrix, [n, k]."""
    rows, cols = -(-weight.n // 16) * 16, -(-weight.k // 32) * 32
    data = weight.data[: packed_bytes(weight.n, weight.k, weight.format)].clone()  # a bank view may be misaligned
    if weight.format == "f32":
        full = data.view(torch.float32).view(rows // 16, cols, 16).transpose(1, 2)
    elif weight.format == "bf16":
        full = data.view(torch.bfloat16).float().view(rows // 16, cols // 2, 16, 2).transpose(1, 2)
    else:
        blocks = data.view(rows // 16, cols // 32, 544)
        scales = blocks[..., :32].contiguous().view(torch.float16).float().view(rows // 16, cols // 32, 1, 16, 1)
        codes = blocks[..., 32:].contiguous().view(torch.int8).float().view(rows // 16, cols // 32, 8, 16, 4)
        full = (codes * scales).permute(0, 3, 1, 2, 4)
    return full.reshape(rows, cols)[: weight.n, : weight.k].contiguous()
