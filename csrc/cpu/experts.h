// Routed experts. Rows that share an expert are computed together, and an expert's tasks are ranges of its output groups.

struct Slice {
  int64_t expert, first, count, g0, g1;  // rows [first, first + count) of the sorted order, groups [g0, g1)
};

// Cuts the used experts' `groups` into tasks. `bytes` are those of one group.
static int64_t cut(const int64_t* starts, int64_t experts, int64_t groups, int64_t bytes, Slice* out) {
  int64_t total = 0, tasks = 0;
  for (int64_t e = 0; e < experts; ++e) total += starts[e + 1] > starts[e] ? groups : 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t count = starts[e + 1] - starts[e];
    if (count == 0) continue;
    const int64_t per = groups_per_task(total, count, bytes);
    for (int64_t g = 0; g < groups; g += per) {
      if (out != nullptr) out[tasks] = {e, starts[e], count, g, g + per < groups ? g + per : groups};
      ++tasks;
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

// The (row, choice) pairs sorted by expert.
struct Sorted {
  int64_t *starts, *order;
};

static Sorted sort_pairs(const Experts& e) {
  int64_t* starts = (int64_t*)pool::shared_scratch(0, (e.experts + 1 + e.experts + e.rows * e.top_k) * sizeof(int64_t));
  int64_t *fill = starts + e.experts + 1, *order = fill + e.experts;
  for (int64_t i = 0; i <= e.experts; ++i) starts[i] = 0;
  for (int64_t p = 0; p < e.rows * e.top_k; ++p) starts[e.ids[p] + 1] += e.addresses[e.ids[p]] != 0;
  for (int64_t i = 0; i < e.experts; ++i) {
    starts[i + 1] += starts[i];
    fill[i] = starts[i];
  }
  for (int64_t p = 0; p < e.rows * e.top_k; ++p)
    if (e.addresses[e.ids[p]] != 0) order[fill[e.ids[p]]++] = p;
  return {starts, order};
}

// One task of the first half: `s` counts groups of gate rows, each taken with its group of up rows, for up to kPanel rows.
FT_INLINE void gate_up_tiles(const Experts& e, const Slice& s, const X* const* x, int64_t rows, int64_t k, X* const* act) {
  const uint8_t* expert = (const uint8_t*)e.addresses[s.expert];
  const float* bias = e.bias_offset == 0 ? nullptr : (const float*)(expert + e.bias_offset);
  const int64_t stride = group_bytes(e.format, e.hidden), halves = e.width / 16, together = groups_together(rows);
  const int64_t most = together == 1 ? 1 : together / 2;
  V sums[kPanel * 4];
  for (int64_t g = s.g0; g < s.g1;) {
    const int64_t wide = s.g1 - g >= most ? most : 1;
    const uint8_t* groups[4];
    for (int64_t i = 0; i < wide; ++i) {
      groups[i] = expert + (g + i) * stride;
      groups[wide + i] = expert + (halves + g + i) * stride;
    }
    const int64_t step = together == 1 ? 1 : 2 * wide, up_at = together == 1 ? rows : wide;
    products(e.format, groups, step, k, x, rows, sums, (wide - 1) * stride);
    if (together == 1) products(e.format, groups + 1, 1, k, x, rows, sums + rows, 0);
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t i = 0; i < wide; ++i) {
        V gate = sums[m * step + i], up = sums[m * step + up_at + i];
        if (bias != nullptr) {
          gate = add(gate, load(bias + 16 * (g + i)));
          up = add(up, load(bias + e.width + 16 * (g + i)));
        }
        store_input(act[m] + 16 * (g + i), activate(e.activation, gate, up), e.format);
      }
    }
    g += wide;
  }
}

static void routed_experts(const Experts& e, float* parts) {
  const int64_t width = e.width, hidden = e.hidden;
  const Sorted sorted = sort_pairs(e);
  const int64_t *starts = sorted.starts, *order = sorted.order, pairs = starts[e.experts];
  if (pairs == 0) return;
  const bool small = pairs * width * hidden <= kSmallWork;
  const Inputs x = prepare(e.x, e.rows, hidden, e.format, 1);
  const int64_t k = padded_inputs(e.format, hidden), act_k = padded_inputs(e.format, width), act_stride = act_k + kApart;
  X* act = (X*)pool::shared_scratch(2, pairs * act_stride * sizeof(X));
  for (int64_t p = 0; p < pairs && act_k > width; ++p)
    for (int64_t i = width; i < act_k; ++i) act[p * act_stride + i] = 0;

  if (width % 16 == 0) {
    const int64_t bytes = 2 * group_bytes(e.format, hidden);
    int64_t tasks = cut(starts, e.experts, width / 16, bytes, nullptr);
    Slice* slices = (Slice*)pool::shared_scratch(4, tasks * sizeof(Slice));
    cut(starts, e.experts, width / 16, bytes, slices);
    parallel(tasks, small, [&](int64_t i, int) {
      FlushSubnormals flush;
      const Slice& s = slices[i];
      for (int64_t first = 0; first < s.count; first += kPanel) {
        const int64_t count = s.count - first < kPanel ? s.count - first : kPanel;
        const X* rows[kPanel];
        X* to[kPanel];
        for (int64_t m = 0; m < count; ++m) {
          rows[m] = x.data + order[s.first + first + m] / e.top_k * x.stride;
          to[m] = act + (s.first + first + m) * act_stride;
        }
        gate_up_tiles(e, s, rows, count, k, to);
      }
    });
  } else {  // gate and up rows share a group somewhere: all sums first, then the activation
    float* sums = (float*)pool::shared_scratch(3, pairs * 2 * width * sizeof(float));
    const int64_t bytes = group_bytes(e.format, hidden), groups = (2 * width + 15) / 16;
    int64_t tasks = cut(starts, e.experts, groups, bytes, nullptr);
    Slice* slices = (Slice*)pool::shared_scratch(4, tasks * sizeof(Slice));
    cut(starts, e.experts, groups, bytes, slices);
    parallel(tasks, small, [&](int64_t i, int) {
      const Slice& s = slices[i];
      const uint8_t* expert = (const uint8_t*)e.addresses[s.expert];
      const float* bias = e.bias_offset == 0 ? nullptr : (const float*)(expert + e.bias_offset);
      for (int64_t first = 0; first < s.count; first += kPanel) {
        const int64_t count = s.count - first < kPanel ? s.count - first : kPanel;
        const X* rows[kPanel];
        float* to[kPanel];
        for (int64_t m = 0; m < count; ++m) {
          rows[m] = x.data + order[s.first + first + m] / e.top_k * x.stride;
          to[m] = sums + (s.first + first + m) * 2 * width;
        }
        multiply(expert, e.format, 2 * width, hidden, s.g0, s.g1, rows, count, bias, to);
      }
    });
    each_row(pairs, width, [&](int64_t r, int) {
      const float* row = sums + 2 * r * width;
      for (int64_t i = 0; i < width; i += 16) {
        V v = activate(e.activation, load_some(row + i, width - i), load_some(row + width + i, width - i));
        store_input_some(act + r * act_stride + i, v, e.format, width - i);
      }
    });
  }

  const int64_t bytes = group_bytes(e.format, width), groups = (hidden + 15) / 16;
  int64_t tasks = cut(starts, e.experts, groups, bytes, nullptr);
  Slice* slices = (Slice*)pool::shared_scratch(4, tasks * sizeof(Slice));
  cut(starts, e.experts, groups, bytes, slices);
  parallel(tasks, small, [&](int64_t i, int) {
    const Slice& s = slices[i];
    const uint8_t* expert = (const uint8_t*)e.addresses[s.expert];
    const float* bias = e.bias_offset == 0 ? nullptr : (const float*)(expert + e.bias_offset) + 2 * width;
    for (int64_t first = 0; first < s.count; first += kPanel) {
      const int64_t count = s.count - first < kPanel ? s.count - first : kPanel;
      const X* rows[kPanel];
      float* to[kPanel];
      for (int64_t m = 0; m < count; ++m) {
        rows[m] = act + (s.first + first + m) * act_stride;
        to[m] = parts + order[s.first + first + m] * hidden;
      }
      multiply(expert + e.down_offset, e.format, hidden, width, s.g0, s.g1, rows, count, bias, to);
    }
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
