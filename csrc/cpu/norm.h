// Row-wise operations. A reduction over a row keeps 16 partial sums by position and adds them in one fixed tree.

FT_INLINE V load_some(const float* p, int64_t left) { return left >= 16 ? load(p) : load_n(p, (int)left); }
FT_INLINE void store_some(float* p, V v, int64_t left) {
  if (left >= 16)
    store(p, v);
  else
    store_n(p, v, (int)left);
}

// Rows are handed out in runs, so that a task is worth claiming.
template <class Row>
FT_INLINE void each_row(int64_t rows, int64_t values, const Row& row) {
  int64_t run = 4096 / (values < 1 ? 1 : values) + 1;
  parallel((rows + run - 1) / run, rows * values <= kSmallWork, [&](int64_t i, int thread) {
    for (int64_t r = i * run; r < rows && r < (i + 1) * run; ++r) row(r, thread);
  });
}

FT_INLINE float inverse_rms(const float* x, int64_t dim, float eps) {
  V squares = zero();
  for (int64_t i = 0; i < dim; i += 16) {
    V v = load_some(x + i, dim - i);
    squares = fma(v, v, squares);
  }
  return 1.0f / __builtin_sqrtf(sum(squares) / (float)dim + eps);
}

FT_INLINE void scale_row(const float* x, int64_t dim, const float* w, float scale, const float* gate, float* out) {
  for (int64_t i = 0; i < dim; i += 16) {
    V v = mul(mul(load_some(x + i, dim - i), set1(scale)), load_some(w + i, dim - i));
    if (gate != nullptr) v = mul(v, silu(load_some(gate + i, dim - i)));
    store_some(out + i, v, dim - i);
  }
}

static void rmsnorm(const float* x, int64_t rows, int64_t dim, const float* w, float eps, const float* gate, float* out) {
  each_row(rows, dim, [&](int64_t r, int) {
    const float* row = x + r * dim;
    scale_row(row, dim, w, inverse_rms(row, dim, eps), gate == nullptr ? nullptr : gate + r * dim, out + r * dim);
  });
}

static void add_rmsnorm(float* residual, const float* delta, int64_t rows, int64_t dim, const float* w, float eps, float* out) {
  each_row(rows, dim, [&](int64_t r, int) {
    float* row = residual + r * dim;
    for (int64_t i = 0; i < dim; i += 16)
      store_some(row + i, add(load_some(row + i, dim - i), load_some(delta + r * dim + i, dim - i)), dim - i);
    scale_row(row, dim, w, inverse_rms(row, dim, eps), nullptr, out + r * dim);
  });
}

static void silu_mul(const float* gate_up, int64_t rows, int64_t width, float* out) {
  each_row(rows, width, [&](int64_t r, int) {
    const float* row = gate_up + 2 * r * width;
    for (int64_t i = 0; i < width; i += 16)
      store_some(out + r * width + i, mul(silu(load_some(row + i, width - i)), load_some(row + width + i, width - i)), width - i);
  });
}

// With `onto` the products are added to it instead of stored.
static void sigmoid_mul(const float* x, const float* gate, int64_t rows, int64_t dim, int64_t gate_dim, bool onto, float* out) {
  each_row(rows, dim, [&](int64_t r, int) {
    V one = gate_dim == 1 ? sigmoid(set1(gate[r])) : zero();
    for (int64_t i = 0; i < dim; i += 16) {
      V s = gate_dim == 1 ? one : sigmoid(load_some(gate + r * dim + i, dim - i));
      V product = mul(load_some(x + r * dim + i, dim - i), s);
      store_some(out + r * dim + i, onto ? add(load_some(out + r * dim + i, dim - i), product) : product, dim - i);
    }
  });
}

// Half-split pairs among the first 2 * half values, in place.
FT_INLINE void rotate(float* head, const float* c, const float* s, int64_t half) {
  float *a = head, *b = head + half;
  for (int64_t i = 0; i < half; i += 16) {
    V first = load_some(a + i, half - i), second = load_some(b + i, half - i);
    V cv = load_some(c + i, half - i), sv = load_some(s + i, half - i);
    store_some(a + i, fnma(second, sv, mul(first, cv)), half - i);
    store_some(b + i, fma(first, sv, mul(second, cv)), half - i);
  }
}
