// Sums of products along k, for tiles of rows times groups of 16 outputs.
//
// One order holds for every tile, instruction set and number of rows, so that a row's bits never depend on its company. A
// group's pairs of inputs are taken one after the other, in each pair the odd input first, with fused multiply-adds that
// flush subnormals: what vdpbf16ps does. A format with scales starts a new sum wherever the scale changes and adds
// sum * scale to the total with one fused multiply-add.
//
// Few rows read packed weights once, straight into registers (`direct`). Many rows unpack a chunk into the first-level
// cache and use it for every row (panel.h).

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
