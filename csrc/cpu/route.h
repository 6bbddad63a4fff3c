// The router: softmax and the largest.

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
