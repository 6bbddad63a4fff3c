// y[m][n] = sum over k of w[n][k] * x[m][k] + bias[n], shared out among the threads.

constexpr int64_t kPanel = 64;                    // rows whose inputs stay in the second-level cache
constexpr int64_t kApart = 64 / sizeof(X);        // so that the same input of neighbouring rows lies in different cache sets

// Rows of activations as the tiles take them, padded with zeros to the format's block.
struct Inputs {
  const X* data;
  int64_t stride;
};

FT_INLINE bool rounds(int format) { return bf16_activations && format != kF32; }

// Sixteen activations, rounded to the run's precision.
FT_INLINE void store_input(X* to, V v, int format) {
#ifdef FT_DOT
  (void)format;
  _mm256_storeu_si256((__m256i*)to, bf16_bits(v));
#else
  store(to, rounds(format) ? round_bf16(v) : v);
#endif
}
FT_INLINE void store_input_some(X* to, V v, int format, int64_t left) {
  if (left >= 16) return store_input(to, v, format);
  alignas(64) X all[16];
  store_input(all, v, format);
  for (int64_t i = 0; i < left; ++i) to[i] = all[i];
}

// Converts once for all tiles, into a shared scratch slot.
static Inputs prepare(const float* x, int64_t rows, int64_t k, int format, int slot) {
  const int64_t padded = padded_inputs(format, k), stride = padded + kApart;
#ifndef FT_DOT
  if (!rounds(format) && padded == k && rows <= kFew) return {x, k};
#endif
  X* out = (X*)pool::shared_scratch(slot, rows * stride * sizeof(X));
  each_row(rows, k, [&](int64_t r, int) {
    X* to = out + r * stride;
    for (int64_t i = 0; i < k; i += 16) store_input_some(to + i, load_some(x + r * k + i, k - i), format, k - i);
    for (int64_t i = k; i < padded; ++i) to[i] = 0;
  });
  return {out, stride};
}

// Groups [g0, g1) of an [n, k] matrix for up to kPanel rows; outputs past n are padding and not stored.
static void multiply(const uint8_t* w, int format, int64_t n, int64_t k, int64_t g0, int64_t g1, const X* const* x, int64_t rows,
                     const float* bias, float* const* y) {
  FlushSubnormals flush;
  const int64_t stride = group_bytes(format, k), padded = padded_inputs(format, k), most = groups_together(rows);
  V sums[kPanel * 4];
  for (int64_t g = g0; g < g1;) {
    int64_t wide = most;
    while (wide > g1 - g) wide /= 2;
    const uint8_t* groups[4];
    for (int64_t i = 0; i < wide; ++i) groups[i] = w + (g + i) * stride;
    products(format, groups, wide, padded, x, rows, sums, (wide - 1) * stride);
    for (int64_t i = 0; i < wide; ++i) {
      const int64_t at = 16 * (g + i), left = n - at;
      const V b = bias == nullptr ? zero() : load_some(bias + at, left);
      for (int64_t m = 0; m < rows; ++m) {
        V v = sums[m * wide + i];
        store_some(y[m] + at, bias == nullptr ? v : add(v, b), left);
      }
    }
    g += wide;
  }
}

// Groups per task, each of `bytes`: small enough to share out evenly, and not so small that claiming costs.
FT_INLINE int64_t groups_per_task(int64_t groups, int64_t rows, int64_t bytes) {
  const int64_t unit = groups_together(rows), cost = bytes * (rows < 8 ? 8 : rows < kPanel ? rows : kPanel);
  int64_t size = groups / (4 * pool::threads()), floor = ((int64_t)1 << 18) / cost, ceiling = ((int64_t)1 << 21) / cost;
  if (size > ceiling) size = ceiling;
  if (size < floor) size = floor;
  size = size / unit * unit;
  return size < unit ? unit : size;
}

static void linear(const float* x, int64_t rows, const uint8_t* w, int format, int64_t n, int64_t k, const float* bias,
                   float* out) {
  const Inputs inputs = prepare(x, rows, k, format, 0);
  const int64_t groups = (n + 15) / 16, panels = (rows + kPanel - 1) / kPanel;
  const int64_t per = groups_per_task(groups, rows, group_bytes(format, k)), slices = (groups + per - 1) / per;
  auto task = [&](int64_t i, int) {
    const int64_t first = i / slices * kPanel, g0 = i % slices * per, g1 = g0 + per < groups ? g0 + per : groups;
    const int64_t count = rows - first < kPanel ? rows - first : kPanel;
    const X* xs[kPanel];
    float* ys[kPanel];
    for (int64_t m = 0; m < count; ++m) {
      xs[m] = inputs.data + (first + m) * inputs.stride;
      ys[m] = out + (first + m) * n;
    }
    multiply(w, format, n, k, g0, g1, xs, count, bias, ys);
  };
  parallel(slices * panels, rows * n * k <= kSmallWork, task);
}
