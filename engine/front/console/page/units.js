// Numbers as people read them, as the dashboard in the terminal writes them. What is not known is "-", never 0.

export const UNKNOWN = "-";
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** 61.2k, 980, 1.2M. */
export function tokens(count) {
  if (!known(count)) return UNKNOWN;
  if (Math.abs(count) < 1000) return count.toFixed(0);
  if (Math.abs(count) < 99_950) return `${(count / 1000).toFixed(1)}k`;
  if (Math.abs(count) < 999_500) return `${(count / 1000).toFixed(0)}k`;
  return `${(count / 1e6).toFixed(1)}M`;
}

/** 57,344. */
export function whole(count) {
  return known(count) ? Math.round(count).toLocaleString("en-US") : UNKNOWN;
}

/** Bytes in binary units: 9.8 GB, 310 MB. */
export function size(count) {
  if (!known(count)) return UNKNOWN;
  for (const [unit, of] of [["GB", 2 ** 30], ["MB", 2 ** 20], ["kB", 2 ** 10]]) {
    if (Math.abs(count) >= of) {
      const value = count / of;
      return value >= 100 ? `${value.toFixed(0)} ${unit}` : `${value.toFixed(1)} ${unit}`;
    }
  }
  return `${count.toFixed(0)} B`;
}

/** A duration that was measured: 0.42s, 13s, 4m05s, 2h14m. */
export function seconds(of) {
  if (!known(of)) return UNKNOWN;
  if (of < 0) return `-${seconds(-of)}`;
  if (of === 0) return "0s";
  if (of < 0.9995) return of < 0.0995 ? `${(of * 1000).toFixed(0)}ms` : `${of.toFixed(2)}s`;
  if (of < 9.95) return `${of.toFixed(1)}s`;
  if (of < 119.5) return `${of.toFixed(0)}s`;
  const two = (n) => String(n).padStart(2, "0");
  if (of < 3600) return `${Math.floor(of / 60)}m${two(Math.floor(of) % 60)}s`;
  return `${Math.floor(of / 3600)}h${two(Math.floor((of % 3600) / 60))}m`;
}

/** A limit that somebody set: 30m, 1h, 95s. */
export function limit(of) {
  if (!known(of)) return UNKNOWN;
  for (const [unit, many] of [["h", 3600], ["m", 60]]) {
    if (of >= many && of % many === 0) return `${of / many}${unit}`;
  }
  return seconds(of);
}

/** How long ago, in one unit: 3s, 4m, 2h, 5d. */
export function age(of) {
  if (!known(of)) return UNKNOWN;
  const ago = Math.max(0, of);
  if (ago < 60) return `${Math.floor(ago)}s`;
  if (ago < 3600) return `${Math.floor(ago / 60)}m`;
  return ago < 172_800 ? `${Math.floor(ago / 3600)}h` : `${Math.floor(ago / 86_400)}d`;
}

export function percent(share, digits = 0) {
  return known(share) ? `${(share * 100).toFixed(digits)}%` : UNKNOWN;
}

export function rate(value) {
  return known(value) ? (value < 10 ? value.toFixed(1) : value.toFixed(0)) : UNKNOWN;
}

export function money(amount) {
  return known(amount) ? amount.toFixed(amount < 0.995 ? 4 : 2) : UNKNOWN;
}

/** The time of day of seconds since the epoch. */
export function clock(at) {
  return known(at) ? new Date(at * 1000).toLocaleTimeString("en-GB") : UNKNOWN;
}
