// Router and routed experts.

static void route(const float* logits, int64_t rows, int64_t experts, int64_t top_k, bool renormalise, int32_t* ids,
                  float* weights) {
  int64_t padded = (experts + 15) / 16 * 16;
  each_row(rows, experts * (4 + top_k), [&](int64_t r, int thread) {
    float* p = (float*)pool::thread_scratch(thread, padded * sizeof(float));
    const float* row = logits + r * experts;
    float top = row[0];
    for (int64_t e = 1; e < experts; ++e) top = row[e] > top ? row[e] : top;
    V total = zero();
    for (int64_t i = 0; i < experts; i += 16) {
      int64_t left = experts - i;
      V v = exp(sub(load_some(row + i, left), set1(top)));
      store(p + i, v);
      total = add(total, left >= 16 ? v : load_n(p + i, (int)left));
    }
    float all = sum(total), chosen = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      int64_t best = 0;
      for (int64_t e = 1; e < experts; ++e) best = p[e] > p[best] ? e : best;
      ids[r * top_k + k] = (int32_t)best;
      weights[r * top_k + k] = p[best] / all;
      chosen += p[best] / all;
      p[best] = -1.0f;  // probabilities are never negative
    }
    if (renormalise)
      for (int64_t k = 0; k < top_k; ++k) weights[r * top_k + k] /= chosen;
  });
}

struct Slice {
  int64_t expert, first, count, g0, g1;  // rows [first, first + count) of the sorted order, groups [g0, g1)
};

// Cuts every used expert's [n, k] matrix into tasks.
static int64_t cut(const int64_t* starts, int64_t experts, int format, int64_t n, int64_t k, Slice* out) {
  int64_t groups = (n + 15) / 16, total = 0, tasks = 0;
  for (int64_t e = 0; e < experts; ++e) total += starts[e + 1] > starts[e] ? groups : 0;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t first = starts[e]; first < starts[e + 1]; first += kPanel) {
      int64_t count = starts[e + 1] - first < kPanel ? starts[e + 1] - first : kPanel;
      int64_t per = groups_per_task(total, count, format, k);
      for (int64_t g = 0; g < groups; g += per) {
        if (out != nullptr) out[tasks] = {e, first, count, g, g + per < groups ? g + per : groups};
        ++tasks;
      }
    }
  }
  return tasks;
}

FT_INLINE V activate(int activation, V gate, V up) {
  if (activation == kSilu) return mul(silu(gate), up);
  gate = min(set1(7.0f), gate);  // the second operand is kept where either is NaN
  up = max(set1(-7.0f), min(set1(7.0f), up));
  return mul(mul(add(up, set1(1.0f)), gate), sigmoid(mul(set1(1.702f), gate)));
}

static void routed_experts(const Experts& e, float* parts) {
  const int64_t width = e.width, hidden = e.hidden;
  int64_t* starts = (int64_t*)pool::shared_scratch(0, (e.experts + 1 + e.experts + e.rows * e.top_k) * sizeof(int64_t));
  int64_t *fill = starts + e.experts + 1, *order = fill + e.experts;  // order: sorted place -> (row, choice)
  for (int64_t i = 0; i <= e.experts; ++i) starts[i] = 0;
  for (int64_t p = 0; p < e.rows * e.top_k; ++p) starts[e.ids[p] + 1] += e.addresses[e.ids[p]] != 0;
  for (int64_t i = 0; i < e.experts; ++i) {
    starts[i + 1] += starts[i];
    fill[i] = starts[i];
  }
  for (int64_t p = 0; p < e.rows * e.top_k; ++p)
    if (e.addresses[e.ids[p]] != 0) order[fill[e.ids[p]]++] = p;
  const int64_t pairs = starts[e.experts];
  const bool rounded = bf16_activations && e.format != kF32;
  const float* inputs = rounded ? round_all(e.x, e.rows * hidden, 5) : e.x;

  float* gate_up = (float*)pool::shared_scratch(1, pairs * 2 * width * sizeof(float));
  float* act = (float*)pool::shared_scratch(2, pairs * width * sizeof(float));

  int64_t tasks = cut(starts, e.experts, e.format, 2 * width, hidden, nullptr);
  Slice* slices = (Slice*)pool::shared_scratch(4, tasks * sizeof(Slice));
  cut(starts, e.experts, e.format, 2 * width, hidden, slices);
  parallel(tasks, pairs * width * hidden <= kSmallWork, [&](int64_t i, int) {
    const Slice& s = slices[i];
    const float* x[kPanel];
    float* y[kPanel];
    for (int64_t m = 0; m < s.count; ++m) {
      x[m] = inputs + order[s.first + m] / e.top_k * hidden;
      y[m] = gate_up + (s.first + m) * 2 * width;
    }
    const uint8_t* expert = (const uint8_t*)e.addresses[s.expert];
    const float* bias = e.bias_offset == 0 ? nullptr : (const float*)(expert + e.bias_offset);
    multiply(expert, e.format, 2 * width, hidden, s.g0, s.g1, x, s.count, bias, y);
  });
  each_row(pairs, width, [&](int64_t r, int) {
    const float* row = gate_up + 2 * r * width;
    for (int64_t i = 0; i < width; i += 16) {
      V v = activate(e.activation, load_some(row + i, width - i), load_some(row + width + i, width - i));
      store_some(act + r * width + i, rounded ? round_bf16(v) : v, width - i);
    }
  });

  tasks = cut(starts, e.experts, e.format, hidden, width, nullptr);
  slices = (Slice*)pool::shared_scratch(4, tasks * sizeof(Slice));
  cut(starts, e.experts, e.format, hidden, width, slices);
  parallel(tasks, pairs * width * hidden <= kSmallWork, [&](int64_t i, int) {
    const Slice& s = slices[i];
    const float* x[kPanel];
    float* y[kPanel];
    for (int64_t m = 0; m < s.count; ++m) {
      x[m] = act + (s.first + m) * width;
      y[m] = parts + order[s.first + m] * hidden;
    }
    const uint8_t* expert = (const uint8_t*)e.addresses[s.expert];
    const float* bias = e.bias_offset == 0 ? nullptr : (const float*)(expert + e.bias_offset) + 2 * width;
    multiply(expert + e.down_offset, e.format, hidden, width, s.g0, s.g1, x, s.count, bias, y);
  });
}

static void combine(const float* parts, const float* weights, int64_t rows, int64_t top_k, int64_t hidden, float* out) {
  each_row(rows, hidden * top_k, [&](int64_t r, int) {
    for (int64_t i = 0; i < hidden; i += 16) {
      V total = zero();
      for (int64_t k = 0; k < top_k; ++k)
        total = fma(load_some(parts + (r * top_k + k) * hidden + i, hidden - i), set1(weights[r * top_k + k]), total);
      store_some(out + r * hidden + i, total, hidden - i);
    }
  });
}
