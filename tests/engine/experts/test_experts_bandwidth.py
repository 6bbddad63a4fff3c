"""Bandwidths that are measured, what follows from them, and profiles that count for their own machine only."""

from __future__ import annotations

import json

import pytest

import engine.kernels
from engine.device.clock import ModelClock
from engine.device.cpu import CpuDevice
from engine.device.emulated import EmulatedDevice, Speeds
from engine.experts import bandwidth
from engine.experts.profile import Profiles
from engine.experts.split import Profile
from engine.kernels.contract import ExpertShape

SHAPE = ExpertShape(256, 64, "q8_0")


def test_the_emulated_bandwidths_are_found(monkeypatch):
    monkeypatch.setattr(bandwidth, "BANK_BYTES", 8 << 20)
    device = EmulatedDevice(Speeds(3e6, 7e6), ModelClock())
    measured = bandwidth.measure(engine.kernels.get("cpu"), device, SHAPE, 4, 3)
    assert measured.profile.fill == pytest.approx(3e6)
    assert measured.profile.host == pytest.approx(7e6)
    rows = {row["name"]: row["value"] for row in bandwidth.rows_of(measured, SHAPE, 4, 10)}
    assert rows["bw.q8_0.share"] == pytest.approx(3 / 7, rel=1e-3)
    assert rows["bw.q8_0.decode"] == pytest.approx(7e6 / (40 * SHAPE.stride), rel=1e-3)


def test_real_memory_has_a_plausible_bandwidth(monkeypatch):
    monkeypatch.setattr(bandwidth, "BANK_BYTES", 64 << 20)
    profile = bandwidth.measure(engine.kernels.get("cpu"), CpuDevice(), ExpertShape(512, 256, "bf16"), 4, 3).profile
    assert 1e8 < profile.host < 1e12
    assert 1e8 < profile.fill < 1e12


def test_a_profile_counts_for_its_own_format_shape_device_and_machine(tmp_path, monkeypatch):
    kept, device, profile = Profiles(tmp_path / "profiles"), EmulatedDevice(Speeds(1e9, 2e9)), Profile(1.5e9, 2.5e9)
    assert kept.find(SHAPE, device) is None
    kept.keep(SHAPE, device, profile)
    assert kept.find(SHAPE, device) == profile
    assert kept.find(ExpertShape(256, 64, "bf16"), device) is None
    assert kept.find(ExpertShape(256, 128, "q8_0"), device) is None
    assert kept.find(SHAPE, CpuDevice()) is None
    assert kept.find(SHAPE, EmulatedDevice(Speeds(1e9, 3e9))) is None
    monkeypatch.setattr("engine.experts.profile.machine", lambda: "another processor x64")
    assert kept.find(SHAPE, device) is None


def test_a_damaged_profile_is_no_profile(tmp_path):
    kept, device = Profiles(tmp_path), CpuDevice()
    kept.keep(SHAPE, device, Profile(1.0, 2.0))
    (path,) = tmp_path.glob("*.json")
    for text in ("", "{}", json.dumps({"schema": "ft.bandwidth/1", "key": 1})):
        path.write_text(text)
        assert kept.find(SHAPE, device) is None


def test_the_command_prints_rows_and_keeps_the_profile(tmp_path, models_dir, monkeypatch, capsys):
    monkeypatch.setattr(bandwidth, "BANK_BYTES", 8 << 20)
    model = ["--model", str(models_dir / "tiny-hybrid"), "--json", "--quick", "--profiles-dir", str(tmp_path)]
    assert bandwidth.main(model) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names == ["bw.f32.fill", "bw.f32.host", "bw.f32.share", "bw.f32.decode", "bw.f32.offload"]
    assert len(list(tmp_path.glob("cpu-f32-64x32.json"))) == 1
