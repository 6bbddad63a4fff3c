// Sums of products along k, for tiles of rows times groups of 16 outputs.
//
// One order holds for every tile, instruction set and number of rows, so that a row's bits never depend on its company. A
// group's pairs of inputs are taken one after the other, in each pair the odd input first, with fused multiply-adds that
// flush subnormals: what vdpbf16ps does. A format with scales starts a new sum wherever the scale changes and adds
// sum * scale to the total with one fused multiply-add.
//
// Few rows read packed weights once, straight into registers (`direct`). Many rows unpack a chunk into the first-level
// cache and use it for every row (`panel`).

// Subnormals as vdpbf16ps has them, while in scope.
struct FlushSubnormals {
  unsigned before = _mm_getcsr();
  FlushSubnormals() { _mm_setcsr(before | 0x8040); }
  ~FlushSubnormals() { _mm_setcsr(before); }
};

template <int MT, int NG>
FT_INLINE void accumulate(V (&sums)[MT][NG], const W (&w)[NG], const X* const (&x)[MT], int64_t at) {
#ifdef FT_DOT
#pragma GCC unroll 16
  for (int m = 0; m < MT; ++m) {
    int pair;
    __builtin_memcpy(&pair, x[m] + at, 4);
    __m512i xv = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) sums[m][g].v = _mm512_dpbf16_ps(sums[m][g].v, (__m512bh)w[g].v, (__m512bh)xv);
  }
#else
#pragma GCC unroll 16
  for (int m = 0; m < MT; ++m) {
    V xv = set1(x[m][at + 1]);
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) sums[m][g] = fma(w[g].odd, xv, sums[m][g]);
  }
#pragma GCC unroll 16
  for (int m = 0; m < MT; ++m) {
    V xv = set1(x[m][at]);
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) sums[m][g] = fma(w[g].even, xv, sums[m][g]);
  }
#endif
}

template <int MT, int NG>
FT_INLINE void clear(V (&sums)[MT][NG]) {
#pragma GCC unroll 16
  for (int m = 0; m < MT; ++m) {
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) sums[m][g] = zero();
  }
}

// Adds `Inputs` inputs of a block, the first of them in vector `q` of its codes at w[g] + offset.
template <int F, int Inputs, int MT, int NG>
FT_INLINE void products_of(V (&sums)[MT][NG], const uint8_t* const (&w)[NG], int64_t offset, int q, const X* const (&x)[MT], int64_t at) {
  using Codes = decltype(codes<F>(w[0], 0));
#pragma GCC unroll 16
  for (int j = 0; j < Inputs / 2 / kPairs<F>; ++j) {
    Codes c[NG];
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) c[g] = codes<F>(w[g] + offset, q + j);
#pragma GCC unroll 4
    for (int i = 0; i < kPairs<F>; ++i) {
      W wv[NG];
#pragma GCC unroll 4
      for (int g = 0; g < NG; ++g) wv[g] = pair<F>(c[g], i);
      accumulate(sums, wv, x, at + 2 * (j * kPairs<F> + i));
    }
  }
}

// Weights that take more work than loading are asked for this many bytes before they are used, into the second-level cache:
// hardware prefetchers stop at every 4 KiB, and work fills the window that would hide the misses. Weights that are only
// loaded are read faster without (measured: 1.0 of a plain reader against 0.75).
constexpr int64_t kAhead = 4096;
template <int F>
constexpr bool kFetched = F == kQ4_0 || F == kMXFP4 || F == kNVFP4;

// `Count` bytes from kAhead after `at`; a stream that ends before that goes on `jump` bytes further, in the next tile.
template <int Count>
FT_INLINE void fetch(const uint8_t* at, int64_t left, int64_t jump) {
  const uint8_t* p = at + kAhead + (left > kAhead ? 0 : jump);
#pragma GCC unroll 40
  for (int i = 0; i < Count; i += 64) _mm_prefetch((const char*)p + i, _MM_HINT_T1);
}

// out[m][g], for `k` inputs, a multiple of the format's block.
template <int F, int MT, int NG>
static void direct(const uint8_t* const* groups, int64_t k, const X* const* rows, V* out, int64_t jump) {
  constexpr Layout l = kLayouts[F];
  constexpr int span = l.scaled == 0 ? 32 : l.scaled, loop = span < 32 ? span : 32;
  const X* x[MT];
  const uint8_t* w[NG];
  for (int m = 0; m < MT; ++m) x[m] = rows[m];
  for (int g = 0; g < NG; ++g) w[g] = groups[g] + l.header;
  V totals[MT][NG], sums[MT][NG];
  clear(totals);
  clear(sums);
  for (int64_t at = 0; at < k; at += l.inputs) {
    const int64_t left = (k - at) / l.inputs * l.bytes;
    for (int g = 0; g < NG && kFetched<F>; ++g) fetch<l.bytes>(w[g], left, jump);
#pragma GCC unroll 2
    for (int s = 0; s < l.inputs / span; ++s) {
      if constexpr (l.scaled != 0) clear(sums);
#pragma GCC unroll 1
      for (int part = 0; part < span; part += loop) {
        products_of<F, loop>(sums, w, span > 32 ? 16 * part : 0, s * span / 2 / kPairs<F>, x, at + s * span + part);
      }
      if constexpr (l.scaled != 0) {
#pragma GCC unroll 4
        for (int g = 0; g < NG; ++g) {
          V factor = scale<F>(w[g], s);
#pragma GCC unroll 16
          for (int m = 0; m < MT; ++m) totals[m][g] = fma(sums[m][g], factor, totals[m][g]);
        }
      }
    }
    for (int g = 0; g < NG; ++g) w[g] += l.bytes;
  }
  for (int m = 0; m < MT; ++m)
    for (int g = 0; g < NG; ++g) out[m * NG + g] = l.scaled != 0 ? totals[m][g] : sums[m][g];
}

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

// How many groups a tile of `rows` rows takes.
constexpr int64_t kFew = 4;
FT_INLINE int64_t groups_together(int64_t rows) {
#ifdef __AVX512F__
  return rows <= 2 ? 4 : 2;
#else
  return rows == 1 ? 4 : 1;
#endif
}

using Direct = void (*)(const uint8_t* const*, int64_t, const X* const*, V*, int64_t);
template <int F>
FT_INLINE Direct direct_of(int64_t rows, int64_t groups) {
#ifdef __AVX512F__
  if (groups == 4 && rows == 2) return direct<F, 2, 4>;
#endif
  if (groups == 4) return direct<F, 1, 4>;
  constexpr Direct two[] = {direct<F, 1, 2>, direct<F, 2, 2>, direct<F, 3, 2>, direct<F, 4, 2>};
  constexpr Direct one[] = {direct<F, 1, 1>, direct<F, 2, 1>, direct<F, 3, 1>, direct<F, 4, 1>};
  return groups == 2 ? two[rows - 1] : one[rows - 1];
}

// out[m][g] = the products of `rows` rows with 1, 2 or 4 groups; k is padded. The next tile's groups probably lie `jump` bytes
// after the ends of these.
template <int F>
static void products(const uint8_t* const* groups, int64_t count, int64_t k, const X* const* x, int64_t rows, V* out, int64_t jump) {
  if (rows <= kFew)
    direct_of<F>(rows, count)(groups, k, x, out, jump);
  else if (count == 1)
    panel<F, 1>(groups, k, x, rows, out, jump);
  else
    panel<F, kWide>(groups, k, x, rows, out, jump);
  if constexpr (kLayouts[F].header != 0)
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t g = 0; g < count; ++g) out[m * count + g] = mul(out[m * count + g], row_scale<F>(groups[g]));
}

FT_INLINE void products(int format, const uint8_t* const* groups, int64_t count, int64_t k, const X* const* x, int64_t rows, V* out,
                        int64_t jump) {
  switch (format) {
#ifndef FT_DOT
    case kF32: return products<kF32>(groups, count, k, x, rows, out, jump);
#endif
    case kBF16: return products<kBF16>(groups, count, k, x, rows, out, jump);
    case kQ8_0: return products<kQ8_0>(groups, count, k, x, rows, out, jump);
    case kQ4_0: return products<kQ4_0>(groups, count, k, x, rows, out, jump);
    case kMXFP4: return products<kMXFP4>(groups, count, k, x, rows, out, jump);
    case kNVFP4: return products<kNVFP4>(groups, count, k, x, rows, out, jump);
    case kFP8: return products<kFP8>(groups, count, k, x, rows, out, jump);
  }
}
