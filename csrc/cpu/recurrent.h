// Linear layers: one token after the other, fp32 state, so that every position is an exact checkpoint.

FT_INLINE float* state_at(const Batch& b, const int64_t* table, int64_t index, int64_t layer, int64_t offset) {
  return (float*)(b.arena + table[index * b.linear_layers + layer] + offset);
}

constexpr int64_t kMostTaps = 8;

static void conv(const Batch& b, int64_t layer, const float* x, int64_t channels, const float* weight, int64_t width,
                 int64_t state_offset, float* out) {
  const int64_t span = 64, slices = (channels + span - 1) / span;
  parallel(b.seqs * slices, b.rows * channels * width <= kSmallWork, [&](int64_t task, int) {
    const int64_t s = task / slices, last = b.row_start[s + 1];
    float* window = state_at(b, b.states, s, layer, state_offset);
    const int64_t end = (task % slices + 1) * span < channels ? (task % slices + 1) * span : channels;
    for (int64_t c = task % slices * span; c < end; c += 16) {
      const int64_t left = channels - c;
      V taps[kMostTaps], history[kMostTaps];
      for (int64_t j = 0; j < width; ++j) {
        alignas(64) float t[16] = {};
        for (int64_t i = 0; i < 16 && i < left; ++i) t[i] = weight[(c + i) * width + j];
        taps[j] = load(t);
      }
      for (int64_t j = 0; j + 1 < width; ++j) history[j] = load_some(window + j * channels + c, left);
      for (int64_t row = b.row_start[s];; ++row) {
        for (int64_t i = 0; i < b.snapshots; ++i) {
          if (b.snapshot_seq[i] != s || b.snapshot_rows[i] != row - b.row_start[s]) continue;
          float* copy = state_at(b, b.snapshot_states, i, layer, state_offset);
          for (int64_t j = 0; j + 1 < width; ++j) store_some(copy + j * channels + c, history[j], left);
        }
        if (row == last) break;
        history[width - 1] = load_some(x + row * channels + c, left);
        V total = zero();
        for (int64_t j = 0; j < width; ++j) total = fma(history[j], taps[j], total);
        for (int64_t j = 0; j + 1 < width; ++j) history[j] = history[j + 1];
        store_some(out + row * channels + c, silu(total), left);
      }
      for (int64_t j = 0; j + 1 < width; ++j) store_some(window + j * channels + c, history[j], left);
    }
  });
}

#ifdef __AVX512F__
constexpr int64_t kStateVectors = 4;
#else
constexpr int64_t kStateVectors = 2;
#endif

struct Delta {
  const Batch& b;
  int64_t layer;
  const float *q, *k, *v, *g, *beta;  // q and k normalised
  int64_t k_heads, k_dim, v_heads, v_dim;
  float* out;
};

FT_INLINE void copy_columns(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; c += 16) store_some(to + i * to_stride + c, load_some(from + i * from_stride + c, columns - c), columns - c);
}

// One sequence, one head, N vectors of columns from `column` on: columns of a state never meet. A single row works on the state
// where it lies; more rows bring it into cache-sized scratch first.
template <int N>
FT_INLINE void delta_columns(const Delta& d, int64_t s, int64_t head, int64_t column, int thread) {
  const int64_t wide = 16 * N, columns = d.v_dim - column < wide ? d.v_dim - column : wide;
  const int64_t first = d.b.row_start[s], last = d.b.row_start[s + 1], k_head = head / (d.v_heads / d.k_heads);
  const int64_t offset = head * d.k_dim * d.v_dim + column;
  float* home = state_at(d.b, d.b.states, s, d.layer, 0) + offset;
  const bool in_place = last - first == 1 && columns == wide;
  const int64_t stride = in_place ? d.v_dim : wide;
  float* state = in_place ? home : (float*)pool::thread_scratch(thread, d.k_dim * wide * sizeof(float));
  if (!in_place) {
    for (int64_t i = 0; i < d.k_dim * wide; i += 16) store(state + i, zero());
    copy_columns(home, d.v_dim, state, stride, d.k_dim, columns);
  }
  for (int64_t row = first;; ++row) {
    for (int64_t i = 0; i < d.b.snapshots; ++i)
      if (d.b.snapshot_seq[i] == s && d.b.snapshot_rows[i] == row - first)
        copy_columns(state, stride, state_at(d.b, d.b.snapshot_states, i, d.layer, 0) + offset, d.v_dim, d.k_dim, columns);
    if (row == last) break;
    const float* q = d.q + (row * d.k_heads + k_head) * d.k_dim;
    const float* k = d.k + (row * d.k_heads + k_head) * d.k_dim;
    const int64_t at = row * d.v_heads + head;
    const V decay = set1(exp1(d.g[at])), rate = set1(d.beta[at]);
    V memory[N], change[N], result[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) memory[n] = result[n] = zero();
    for (int64_t i = 0; i < d.k_dim; ++i) {
      V kv = set1(k[i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) memory[n] = fma(mul(load(state + i * stride + 16 * n), decay), kv, memory[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      change[n] = 16 * n < columns ? mul(sub(load_some(d.v + at * d.v_dim + column + 16 * n, columns - 16 * n), memory[n]), rate) : zero();
    for (int64_t i = 0; i < d.k_dim; ++i) {
      V kv = set1(k[i]), qv = set1(q[i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        V value = fma(kv, change[n], mul(load(state + i * stride + 16 * n), decay));
        store(state + i * stride + 16 * n, value);
        result[n] = fma(value, qv, result[n]);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      if (16 * n < columns) store_some(d.out + at * d.v_dim + column + 16 * n, result[n], columns - 16 * n);
  }
  if (!in_place) copy_columns(state, stride, home, d.v_dim, d.k_dim, columns);
}

FT_INLINE void unit_length(const float* x, int64_t dim, float scale, float* out) {
  V squares = zero();
  for (int64_t i = 0; i < dim; i += 16) {
    V v = load_some(x + i, dim - i);
    squares = fma(v, v, squares);
  }
  V factor = set1(scale / __builtin_sqrtf(sum(squares) + 1e-6f));
  for (int64_t i = 0; i < dim; i += 16) store_some(out + i, mul(load_some(x + i, dim - i), factor), dim - i);
}

static void delta_rule(const Batch& b, int64_t layer, const float* q, const float* k, const float* v, const float* g,
                       const float* beta, int64_t k_heads, int64_t k_dim, int64_t v_heads, int64_t v_dim, float* out) {
  const int64_t values = b.rows * k_heads * k_dim;
  float* unit_q = (float*)pool::shared_scratch(0, 2 * values * sizeof(float));
  float* unit_k = unit_q + values;
  const float q_scale = 1.0f / __builtin_sqrtf((float)k_dim);
  each_row(b.rows * k_heads, 2 * k_dim, [&](int64_t r, int) {
    unit_length(q + r * k_dim, k_dim, q_scale, unit_q + r * k_dim);
    unit_length(k + r * k_dim, k_dim, 1.0f, unit_k + r * k_dim);
  });
  const Delta d{b, layer, unit_q, unit_k, v, g, beta, k_heads, k_dim, v_heads, v_dim, out};
  const int64_t slices = (v_dim + 16 * kStateVectors - 1) / (16 * kStateVectors);
  parallel(b.seqs * v_heads * slices, b.rows * v_heads * k_dim * v_dim <= kSmallWork, [&](int64_t task, int thread) {
    int64_t s = task / (v_heads * slices), head = task / slices % v_heads, column = task % slices * 16 * kStateVectors;
    delta_columns<kStateVectors>(d, s, head, column, thread);
  });
}

// [M, 2 * heads] (beta's half first) -> log decay and beta, [M, heads]. Scalar, so that no element depends on where it stands.
static void delta_gates(const float* ba, int64_t rows, int64_t heads, const float* decay, const float* dt_bias, float* g, float* beta) {
  each_row(rows, 64 * heads, [&](int64_t r, int) {
    for (int64_t h = 0; h < heads; ++h) {
      const float step = ba[(2 * r + 1) * heads + h] + dt_bias[h];
      const float softplus = (step > 0.0f ? step : 0.0f) + __builtin_log1pf(__builtin_expf(-__builtin_fabsf(step)));
      g[r * heads + h] = decay[h] * softplus;
      beta[r * heads + h] = 1.0f / (1.0f + __builtin_expf(-ba[2 * r * heads + h]));
    }
  });
}
