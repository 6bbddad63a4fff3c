// y[m][n] = sum over k of w[n][k] * x[m][k], as one chain of fused multiply-adds per output in the order of k; a format with
// a scale per 32 inputs sums the codes of each 32 first and adds scale * sum to the chain. Sixteen outputs share a vector, so
// the order is the same whatever the tile, and a row's bits never depend on its company.
//
// There is no software prefetch: several groups are read as parallel streams, which the hardware follows better alone.

constexpr int64_t block_bytes(int format) { return format == kF32 ? 2048 : format == kBF16 ? 1024 : 544; }
FT_INLINE int64_t group_bytes(int format, int64_t k) { return (k + 31) / 32 * block_bytes(format); }

// 32 inputs of MT rows times NG groups of 16 outputs.
template <int F, int MT, int NG>
FT_INLINE void block(V (&acc)[MT][NG], const uint8_t* w, int64_t stride, const float* const (&x)[MT], int64_t at) {
  auto accumulate = [&](V(&sums)[MT][NG], const V(&wv)[NG], int64_t k) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int m = 0; m < MT; ++m) {
      V xv = set1(x[m][k]);
#pragma GCC unroll 4
      for (int g = 0; g < NG; ++g) sums[m][g] = fma(wv[g], xv, sums[m][g]);
    }
  };
  if constexpr (F == kF32) {
#pragma GCC unroll 4
    for (int j = 0; j < 32; ++j) {
      V wv[NG];
#pragma GCC unroll 4
      for (int g = 0; g < NG; ++g) wv[g] = load(w + g * stride + 64 * j);
      accumulate(acc, wv, at + j);
    }
  } else if constexpr (F == kBF16) {
#pragma GCC unroll 2
    for (int j = 0; j < 16; ++j) {
      I raw[NG];
      V even[NG], odd[NG];
#pragma GCC unroll 4
      for (int g = 0; g < NG; ++g) {
        raw[g] = load_bits(w + g * stride + 64 * j);
        even[g] = low_half(raw[g]);
        odd[g] = high_half(raw[g]);
      }
      accumulate(acc, even, at + 2 * j);
      accumulate(acc, odd, at + 2 * j + 1);
    }
  } else {
    V sums[MT][NG];
#pragma GCC unroll 8
    for (int m = 0; m < MT; ++m) {
#pragma GCC unroll 4
      for (int g = 0; g < NG; ++g) sums[m][g] = zero();
    }
    for (int j = 0; j < 8; ++j) {
      I raw[NG];
      V wv[NG];
#pragma GCC unroll 4
      for (int g = 0; g < NG; ++g) raw[g] = load_bits(w + g * stride + 32 + 64 * j);
#define FT_BYTE(B)                                                                 \
  _Pragma("GCC unroll 4") for (int g = 0; g < NG; ++g) wv[g] = byte_scaled<B>(raw[g]); \
  accumulate(sums, wv, at + 4 * j + B);
      FT_BYTE(0)
      FT_BYTE(1)
      FT_BYTE(2)
      FT_BYTE(3)
#undef FT_BYTE
    }
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) {
      V scale = mul(load_fp16(w + g * stride), set1(1.0f / 16777216.0f));  // byte_scaled multiplied by 2^24: exact
#pragma GCC unroll 8
      for (int m = 0; m < MT; ++m) acc[m][g] = fma(sums[m][g], scale, acc[m][g]);
    }
  }
}

// x: MT row pointers; y: MT row pointers to column `first`; outputs past `last` are padding and not stored.
template <int F, int MT, int NG>
void tile(const uint8_t* w, int64_t k, const float* const* x, const float* bias, float* const* y, int64_t first, int64_t last) {
  const int64_t stride = group_bytes(F, k), blocks = k / 32;
  const float* rows[MT];
  for (int m = 0; m < MT; ++m) rows[m] = x[m];
  V acc[MT][NG];
#pragma GCC unroll 8
  for (int m = 0; m < MT; ++m) {
#pragma GCC unroll 4
    for (int g = 0; g < NG; ++g) acc[m][g] = zero();
  }
  for (int64_t b = 0; b < blocks; ++b, w += block_bytes(F)) {
    block<F, MT, NG>(acc, w, stride, rows, 32 * b);
  }
  if (k % 32 != 0) {
    alignas(64) float tail[MT][32] = {};
    const float* tails[MT];
    for (int m = 0; m < MT; ++m) {
      for (int64_t i = 0; i < k % 32; ++i) tail[m][i] = rows[m][32 * blocks + i];
      tails[m] = tail[m];
    }
    block<F, MT, NG>(acc, w, stride, tails, 0);
  }
#pragma GCC unroll 4
  for (int g = 0; g < NG; ++g) {
    int64_t at = first + 16 * g;
    int count = last - at < 16 ? (int)(last - at) : 16;
    V b = bias == nullptr ? zero() : load_n(bias + at, count);
#pragma GCC unroll 8
    for (int m = 0; m < MT; ++m) {
      V value = bias == nullptr ? acc[m][g] : add(acc[m][g], b);
      if (count == 16)
        store(y[m] + at, value);
      else
        store_n(y[m] + at, value, count);
    }
  }
}

using Tile = void (*)(const uint8_t*, int64_t, const float* const*, const float*, float* const*, int64_t, int64_t);
template <int F, int NG>
struct TileRow {
  static constexpr Tile by_rows[8] = {tile<F, 1, NG>, tile<F, 2, NG>, tile<F, 3, NG>, tile<F, 4, NG>,
                                      tile<F, 5, NG>, tile<F, 6, NG>, tile<F, 7, NG>, tile<F, 8, NG>};
};
template <int F>
FT_INLINE Tile find_tile(int64_t rows, int groups) {
  return groups == 4 ? (rows <= 4 ? (const Tile[]){tile<F, 1, 4>, tile<F, 2, 4>, tile<F, 3, 4>, tile<F, 4, 4>}[rows - 1] : nullptr)
         : groups == 2 ? TileRow<F, 2>::by_rows[rows - 1]
                       : TileRow<F, 1>::by_rows[rows - 1];
}

// The tile that fills the register file: rows at a time and groups at a time.
struct Shape {
  int rows, groups;
};
FT_INLINE Shape shape_for(int64_t rows, int format) {
#ifdef __AVX512F__
  (void)format;
  return rows <= 4 ? Shape{4, 4} : Shape{8, 2};
#else
  if (rows == 1) return {1, 4};
  if (rows <= 3) return {3, 2};
  return {format == kF32 ? 6 : 4, 1};
#endif
}

// Groups [g0, g1) of an [n, k] matrix for `rows` rows.
static void multiply(const uint8_t* w, int format, int64_t n, int64_t k, int64_t g0, int64_t g1, const float* const* x,
                     int64_t rows, const float* bias, float* const* y) {
  const int64_t stride = group_bytes(format, k);
  const Shape shape = shape_for(rows, format);
  const int64_t turns = (rows + shape.rows - 1) / shape.rows, share = (rows + turns - 1) / turns;  // 9 rows: 5 + 4, not 8 + 1
  for (int64_t g = g0; g < g1;) {
    int groups = g + shape.groups <= g1 ? shape.groups : g + 2 <= g1 && shape.groups > 2 ? 2 : 1;
    for (int64_t m = 0; m < rows; m += share) {
      int64_t count = rows - m < share ? rows - m : share;
      Tile t = format == kF32    ? find_tile<kF32>(count, groups)
               : format == kBF16 ? find_tile<kBF16>(count, groups)
                                 : find_tile<kQ8_0>(count, groups);
      t(w + g * stride, k, x + m, bias, y + m, 16 * g, n);
    }
    g += groups;
  }
}

// Groups of 16 outputs per task: small enough to share out evenly, whole tiles, and not so small that claiming costs.
FT_INLINE int64_t groups_per_task(int64_t groups, int64_t rows, int format, int64_t k) {
  int64_t unit = shape_for(rows, format).groups;
  int64_t share = groups / (4 * pool::threads()) / unit * unit;
  int64_t cost = group_bytes(format, k) * (rows < 8 ? 8 : rows);
  int64_t floor = ((int64_t)1 << 18) / cost / unit * unit;
  int64_t ceiling = ((int64_t)1 << 23) / cost / unit * unit;
  int64_t size = share < ceiling ? share : ceiling;
  if (size < floor) size = floor;
  return size < unit ? unit : size;
}

constexpr int64_t kPanel = 64;                // rows whose inputs stay in the second-level cache
constexpr int64_t kSmallWork = (int64_t)1 << 14;  // multiply-adds below which waking threads costs more than the work

FT_INLINE V round_bf16(V v) {
  alignas(64) uint32_t bits[16];
  store((float*)bits, v);
  for (int i = 0; i < 16; ++i) {
    bool nan = (bits[i] & 0x7fffffff) > 0x7f800000;
    bits[i] = (nan ? bits[i] | 0x400000 : bits[i] + 0x7fff + ((bits[i] >> 16) & 1)) & 0xffff0000;
  }
  return load(bits);
}

// A rounded copy of `count` values in a shared scratch slot.
FT_INLINE const float* round_all(const float* x, int64_t count, int slot) {
  float* out = (float*)pool::shared_scratch(slot, (count + 16) * sizeof(float));
  for (int64_t i = 0; i < count; i += 16)
    store(out + i, round_bf16(count - i >= 16 ? load(x + i) : load_n(x + i, (int)(count - i))));
  return out;
}

static void linear(const float* x, int64_t rows, const uint8_t* w, int format, int64_t n, int64_t k, const float* bias,
                   float* out) {
  if (bf16_activations && format != kF32) x = round_all(x, rows * k, 5);
  const int64_t groups = (n + 15) / 16, panels = (rows + kPanel - 1) / kPanel;
  const int64_t per = groups_per_task(groups, rows < kPanel ? rows : kPanel, format, k);
  const int64_t slices = (groups + per - 1) / per;
  auto task = [&](int64_t i, int) {
    int64_t first = i / slices * kPanel, g0 = i % slices * per, g1 = g0 + per < groups ? g0 + per : groups;
    int64_t count = rows - first < kPanel ? rows - first : kPanel;
    const float* xs[kPanel];
    float* ys[kPanel];
    for (int64_t m = 0; m < count; ++m) {
      xs[m] = x + (first + m) * k;
      ys[m] = out + (first + m) * n;
    }
    multiply(w, format, n, k, g0, g1, xs, count, bias, ys);
  };
  parallel(slices * panels, rows * n * k <= kSmallWork, task);
}
