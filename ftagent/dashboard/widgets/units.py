"""Numbers as people read them. What is not known is `-`, never 0."""

from __future__ import annotations

UNKNOWN = "-"


def tokens(count: float | None) -> str:
    """61.2k, 980, 1.2M."""
    if count is None:
        return UNKNOWN
    if abs(count) < 1000:
        return f"{count:.0f}"
    if abs(count) < 99_950:
        return f"{count / 1000:.1f}k"
    if abs(count) < 999_500:
        return f"{count / 1000:.0f}k"
    return f"{count / 1e6:.1f}M"


def whole(count: float | None) -> str:
    """57,344."""
    return UNKNOWN if count is None else f"{count:,.0f}"


def size(count: float | None) -> str:
    """Bytes in binary units: 9.8 GB, 310 MB."""
    if count is None:
        return UNKNOWN
    for unit, of in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if abs(count) >= of:
            value = count / of
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
    return f"{count:.0f} B"


def seconds(of: float | None) -> str:
    """A duration that was measured: 0.42s, 13s, 4m05s, 2h14m."""
    if of is None:
        return UNKNOWN
    if of < 0:
        return "-" + seconds(-of)
    if of == 0:
        return "0s"
    if of < 0.9995:
        return f"{of * 1000:.0f}ms" if of < 0.0995 else f"{of:.2f}s"
    if of < 9.95:
        return f"{of:.1f}s"
    if of < 119.5:
        return f"{of:.0f}s"
    if of < 3600:
        return f"{int(of) // 60}m{int(of) % 60:02d}s"
    return f"{int(of) // 3600}h{int(of) % 3600 // 60:02d}m"


def limit(of: float | None) -> str:
    """A limit that somebody set: 30m, 1h, 300s as 5m, 95s as it is."""
    if of is None:
        return UNKNOWN
    for unit, many in (("h", 3600), ("m", 60)):
        if of >= many and of % many == 0:
            return f"{of / many:.0f}{unit}"
    return seconds(of)


def age(of: float | None) -> str:
    """How long ago, in one unit: 3s, 4m, 2h, 5d."""
    if of is None:
        return UNKNOWN
    of = max(0.0, of)
    if of < 60:
        return f"{of:.0f}s"
    if of < 3600:
        return f"{of // 60:.0f}m"
    return f"{of // 3600:.0f}h" if of < 172_800 else f"{of // 86_400:.0f}d"


def percent(share: float | None, digits: int = 0) -> str:
    return UNKNOWN if share is None else f"{share * 100:.{digits}f}%"


def rate(value: float | None, unit: str = "") -> str:
    if value is None:
        return UNKNOWN
    return (f"{value:.1f}" if value < 10 else f"{value:.0f}") + unit


def byte_rate(value: float | None) -> str:
    """Per second, in decimal units as buses are sold: 21.4 GB/s."""
    if value is None:
        return UNKNOWN
    return f"{value / 1e9:.1f} GB/s" if value >= 1e8 else f"{value / 1e6:.1f} MB/s"


def joules(count: float | None) -> str:
    """Energy: 840 J, 12.4 kJ, 3.1 MJ."""
    if count is None:
        return UNKNOWN
    for unit, of in (("MJ", 1e6), ("kJ", 1e3)):
        if count >= of:
            return f"{count / of:.1f} {unit}"
    return f"{count:.0f} J"


def of_size(used: float | None, total: float | None) -> str:
    """Both in the unit of the whole: 24/32 GB, 4.1/5.2 GB."""
    if used is None or total is None:
        return size(total if used is None else used)
    unit = 2**30 if total >= 2**30 else 2**20
    digits = 0 if total >= 20 * unit else 1
    return f"{used / unit:.{digits}f}/{total / unit:.{digits}f} {'GB' if unit == 2**30 else 'MB'}"
