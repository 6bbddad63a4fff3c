// Keys and values in their pages: stored after the heads are prepared, and brought in blocks of keys for attention.

constexpr int64_t kKeys = 32;  // of a block

FT_INLINE uint8_t* kv_at(const Batch& b, int64_t layer, int64_t seq, int64_t pos, int64_t which, int64_t head, int64_t heads,
                         int64_t dim) {
  int64_t size = b.kv_bf16 ? 2 : 4, page = pos / b.page_tokens;
  int64_t vector = ((2 * layer + which) * heads + head) * b.page_tokens + pos % b.page_tokens;
  return b.arena + b.page_offsets[seq * b.pages + page] + vector * dim * size;
}

FT_INLINE int64_t seq_of(const Batch& b, int64_t row) {
  int64_t s = 0;
  while (b.row_start[s + 1] <= row) ++s;
  return s;
}

FT_INLINE void store_vector(const float* from, int64_t dim, bool bf16, uint8_t* to) {
  if (!bf16) {
    __builtin_memcpy(to, from, dim * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < dim; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, from + i, 4);
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    ((uint16_t*)to)[i] = (uint16_t)((nan ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

// From a projection's row to rotated queries and stored keys and values, in one pass: in decode the gaps between calls cost more.
static void place_heads(const Batch& b, int64_t layer, const Heads& p, float* q) {
  const int64_t dim = p.dim;
  each_row(b.rows, (p.heads + 2 * p.kv_heads) * dim, [&](int64_t r, int thread) {
    const int64_t seq = seq_of(b, r), position = b.positions[r];
    const float *row = p.x + r * p.columns, *key = row + p.key_column, *value = key + p.kv_heads * dim;
    const float *c = p.cos + position * p.half, *s = p.sin + position * p.half;
    auto prepare = [&](const float* from, const float* norm, float eps, float* to) {
      if (norm == nullptr)
        __builtin_memcpy(to, from, dim * sizeof(float));
      else
        scale_row(from, dim, norm, inverse_rms(from, dim, eps), nullptr, to);
      rotate(to, c, s, p.half);
    };
    for (int64_t h = 0; h < p.heads; ++h) prepare(row + h * dim, p.q_norm, p.q_eps, q + (r * p.heads + h) * dim);
    float* one = (float*)pool::thread_scratch(thread, dim * sizeof(float));
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      prepare(key + h * dim, p.k_norm, p.k_eps, one);
      store_vector(one, dim, b.kv_bf16, kv_at(b, layer, seq, position, 0, h, p.kv_heads, dim));
      store_vector(value + h * dim, dim, b.kv_bf16, kv_at(b, layer, seq, position, 1, h, p.kv_heads, dim));
    }
  });
}

FT_INLINE void transpose8(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(in + i * in_stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

FT_INLINE void load_vector(const uint8_t* from, bool bf16, int64_t dim, float* out) {
  for (int64_t i = 0; i < dim; i += 16) {
    if (dim - i >= 16) {
      store(out + i, bf16 ? load_bf16((const uint16_t*)from + i) : load((const float*)from + i));
    } else {
      for (int64_t j = 0; j < 16; ++j) {
        uint32_t bits = 0;
        if (i + j < dim) bits = bf16 ? (uint32_t)((const uint16_t*)from)[i + j] << 16 : ((const uint32_t*)from)[i + j];
        __builtin_memcpy(out + i + j, &bits, 4);
      }
    }
  }
}

// Sixteen bf16 of each of two keys, side by side.
FT_INLINE void interleave(const uint16_t* even, const uint16_t* odd, float* out) {
  __m256i a = _mm256_loadu_si256((const __m256i*)even), b = _mm256_loadu_si256((const __m256i*)odd);
  __m256i low = _mm256_unpacklo_epi16(a, b), high = _mm256_unpackhi_epi16(a, b);
  _mm256_storeu_si256((__m256i*)out, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256((__m256i*)out + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

// A block whose keys, and values, lie `dim` values apart.
static __attribute__((noinline)) void load_pairs(const uint16_t* keys, const uint16_t* values, int64_t dim, float* keys_t,
                                                 float* pairs) {
  for (int64_t d = 0; d < dim / 2; d += 8) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kKeys; j += 8) transpose8((const float*)(keys + j * dim) + d, dim / 2, keys_t + d * kKeys + j, kKeys);
  }
  for (int64_t j = 0; j < kKeys; j += 2)
    for (int64_t i = 0; i < dim; i += 16) interleave(values + j * dim + i, values + (j + 1) * dim + i, pairs + j / 2 * dim + i);
}
