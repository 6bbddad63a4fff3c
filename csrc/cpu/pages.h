// Keys and values in their pages: stored after the heads are prepared, and brought in blocks of 16 positions for attention.
//
// Kept as bf16, a block lies as attention multiplies it: keys as [dim / 2][16 keys][2 values], values as
// [8 pairs of keys][dim][2 keys]. Kept as f32, both are [16 keys][dim].

constexpr int64_t kBlock = 16;

// Where a position's vector lies, kept as f32; where the block that starts at `pos` lies, kept as bf16.
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

// Stores one key and one value of a head.
FT_INLINE void store_position(const Batch& b, int64_t layer, int64_t seq, int64_t pos, int64_t head, int64_t heads, int64_t dim,
                              float* key, float* value) {
  const int64_t slot = b.kv_bf16 ? pos % kBlock : 0;
  uint8_t *keys = kv_at(b, layer, seq, pos - slot, 0, head, heads, dim), *values = kv_at(b, layer, seq, pos - slot, 1, head, heads, dim);
  if (!b.kv_bf16) {
    __builtin_memcpy(keys, key, dim * sizeof(float));
    __builtin_memcpy(values, value, dim * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < dim; i += 16) {
    store_some(key + i, round_bf16(load_some(key + i, dim - i)), dim - i);
    store_some(value + i, round_bf16(load_some(value + i, dim - i)), dim - i);
  }
  const uint16_t *key_bits = (const uint16_t*)key + 1, *value_bits = (const uint16_t*)value + 1;  // the halves that are not 0
  for (int64_t i = 0; i < dim; ++i) ((uint16_t*)keys)[(i / 2 * kBlock + slot) * 2 + i % 2] = key_bits[2 * i];
  for (int64_t i = 0; i < dim; ++i) ((uint16_t*)values)[(slot / 2 * dim + i) * 2 + slot % 2] = value_bits[2 * i];
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
    float *one = (float*)pool::thread_scratch(thread, 2 * dim * sizeof(float)), *other = one + dim;
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      prepare(key + h * dim, p.k_norm, p.k_eps, one);
      __builtin_memcpy(other, value + h * dim, dim * sizeof(float));
      store_position(b, layer, seq, position, h, p.kv_heads, dim, one, other);
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

// A block kept as f32, of which keys [first, last) are seen, as keys [padded][kBlock] and values [kBlock][padded]. `find` gives
// the address of a key (0) or value (1); `rows` is [kBlock][padded] to work in.
template <class Find>
FT_INLINE void load_f32(const Find& find, int64_t first, int64_t last, int64_t dim, int64_t padded, float* rows, float* keys,
                        float* values) {
  for (int64_t j = 0; j < kBlock; ++j)
    for (int64_t i = 0; i < padded; i += 16) {
      const bool seen = j >= first && j < last;
      store(rows + j * padded + i, seen ? load_some((const float*)find(j, 0) + i, dim - i) : zero());
      if (seen) store(values + j * padded + i, load_some((const float*)find(j, 1) + i, dim - i));
    }
  for (int64_t d = 0; d < padded; d += 8)
    for (int64_t j = 0; j < kBlock; j += 8) transpose8(rows + j * padded + d, padded, keys + d * kBlock + j, kBlock);
}

// Sixteen pairs, or the `left` that there are.
FT_INLINE I load_pairs(const uint8_t* from, int64_t left) {
  if (left >= 16) return load_bits(from);
  alignas(64) uint32_t some[16] = {};
  __builtin_memcpy(some, from, left * 4);
  return load_bits(some);
}

// A block kept as bf16, as keys [dim][kBlock] and values [kBlock][padded] in fp32.
static void widen(const uint8_t* from_keys, const uint8_t* from_values, int64_t dim, int64_t padded, float* keys, float* values) {
  for (int64_t d = 0; d < dim; d += 2) {
    I pairs = load_bits(from_keys + d * kBlock * 2);
    store(keys + d * kBlock, low_half(pairs));
    store(keys + (d + 1) * kBlock, high_half(pairs));
  }
  for (int64_t j = 0; j < kBlock; j += 2)
    for (int64_t i = 0; i < dim; i += 16) {
      I pairs = load_pairs(from_values + (j / 2 * dim + i) * 4, dim - i);
      store(values + j * padded + i, low_half(pairs));
      store(values + (j + 1) * padded + i, high_half(pairs));
    }
}
