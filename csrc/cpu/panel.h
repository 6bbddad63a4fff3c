// Many rows: a chunk of a few groups is unpacked into the first-level cache and used by every row, in strips of rows whose
// sums fill the register file.

constexpr int64_t kChunk = 128;  // inputs that are unpacked at a time
constexpr int64_t kVectors = kChunk / 2 * sizeof(W) / 64;

// Adds `inputs` inputs of unpacked weights to out[m][g]; a scale for each S inputs, or none.
template <int S, int MT, int NG>
static void strip(const uint8_t* const* groups, const V* scales, int64_t inputs, const X* const* rows, int64_t at, V* out) {
  constexpr int span = S == 0 ? 32 : S, loop = span < 32 ? span : 32;
  constexpr int format = sizeof(X) == 2 ? kBF16 : kF32;
  const X* x[MT];
  const uint8_t* w[NG];
  for (int m = 0; m < MT; ++m) x[m] = rows[m] + at;
  for (int g = 0; g < NG; ++g) w[g] = groups[g];
  V totals[MT][NG], sums[MT][NG];
#pragma GCC unroll 16
  for (int m = 0; m < MT; ++m) {
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) totals[m][g] = sums[m][g] = out[m * NG + g];
  }
  for (int64_t i = 0; i < inputs; i += span) {
    if constexpr (S != 0) clear(sums);
#pragma GCC unroll 1
    for (int part = 0; part < span; part += loop) {
      products_of<format, loop>(sums, w, 0, 0, x, 0);
      for (int g = 0; g < NG; ++g) w[g] += loop / 2 * sizeof(W);
      for (int m = 0; m < MT; ++m) x[m] += loop;
    }
    if constexpr (S != 0) {
#pragma GCC unroll 16
      for (int m = 0; m < MT; ++m) {
#pragma GCC unroll 4
        for (int g = 0; g < NG; ++g) totals[m][g] = fma(sums[m][g], scales[i / span * NG + g], totals[m][g]);
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MT; ++m) {
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) out[m * NG + g] = S == 0 ? sums[m][g] : totals[m][g];
  }
}

using Strip = void (*)(const uint8_t* const*, const V*, int64_t, const X* const*, int64_t, V*);
#ifdef __AVX512F__
constexpr int kTall = 12, kWide = 2;  // rows and groups of a strip: with the weights they fill the register file
#else
constexpr int kTall = 5, kWide = 1;
#endif
template <int S>
constexpr int tall = S != 0 && kTall == 12 ? 6 : kTall;  // with scales there are two sums for each output
template <int S, int NG>
FT_INLINE Strip strip_of(int64_t rows) {
  if constexpr (tall<S> == 12) {
    constexpr Strip by_rows[] = {strip<S, 1, NG>, strip<S, 2, NG>, strip<S, 3, NG>, strip<S, 4, NG>,  strip<S, 5, NG>,  strip<S, 6, NG>,
                                 strip<S, 7, NG>, strip<S, 8, NG>, strip<S, 9, NG>, strip<S, 10, NG>, strip<S, 11, NG>, strip<S, 12, NG>};
    return by_rows[rows - 1];
  } else {
    constexpr Strip by_rows[] = {strip<S, 1, NG>, strip<S, 2, NG>, strip<S, 3, NG>, strip<S, 4, NG>, strip<S, 5, NG>, strip<S, 6, NG>};
    return by_rows[rows - 1];
  }
}

template <int F, int NG>
static void panel(const uint8_t* const* groups, int64_t k, const X* const* x, int64_t rows, V* out, int64_t jump) {
  constexpr Layout l = kLayouts[F];
  constexpr bool as_is = F == (sizeof(X) == 2 ? kBF16 : kF32);
  constexpr int per_chunk = kChunk / l.inputs, spans = l.scaled == 0 ? 0 : l.inputs / l.scaled;
  alignas(64) uint8_t unpacked[as_is ? 1 : NG][as_is ? 64 : 64 * kVectors];
  V scales[per_chunk * (spans == 0 ? 1 : spans) * NG];
  const int64_t tiles = (rows + tall<l.scaled> - 1) / tall<l.scaled>;
  for (int64_t i = 0; i < rows * NG; ++i) out[i] = zero();
  for (int64_t at = 0; at < k; at += kChunk) {
    const int64_t inputs = k - at < kChunk ? k - at : kChunk;
    const uint8_t* w[NG];
    for (int g = 0; g < NG; ++g) {
      const uint8_t* block = groups[g] + l.header + at / l.inputs * l.bytes;
      if constexpr (as_is) {
        w[g] = block;
        continue;
      }
      w[g] = unpacked[g];
      uint8_t* to = unpacked[g];
      for (int64_t b = 0; b < inputs / l.inputs; ++b, block += l.bytes) {
        fetch<l.bytes>(block, (k - at) / l.inputs * l.bytes - b * l.bytes, jump);
        for (int part = 0; part < l.inputs / 32; ++part, to += 16 * sizeof(W)) {
#pragma GCC unroll 16
          for (int j = 0; j < 16 / kPairs<F>; ++j) {
            const auto c = codes<F>(block + 512 * part, j);
#pragma GCC unroll 4
            for (int i = 0; i < kPairs<F>; ++i) {
              W v = pair<F>(c, i);
              __builtin_memcpy(to + (j * kPairs<F> + i) * sizeof(W), &v, sizeof(W));
            }
          }
        }
        for (int s = 0; s < spans; ++s) scales[(b * spans + s) * NG + g] = scale<F>(block, s);
      }
    }
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t m = t * rows / tiles, count = (t + 1) * rows / tiles - m;
      strip_of<l.scaled, NG>(count)(w, scales, inputs, x + m, at, out + m * NG);
    }
  }
}
