// How packed weights (engine/kernels/contract.py, Packed) become numbers. `codes<F>(block, q)` loads a vector of codes, in
// which `pair<F>(codes, i)` finds a pair of neighbouring inputs of 16 rows, exactly; what a format scales is left to `scale`
// and `row_scale`.
//
// Codes no quantiser makes are not read as the tables say: q8_0's -128, and E4M3's NaN.

#ifdef FT_DOT
using X = uint16_t;  // activations are bf16
struct W {
  __m512i v;  // a 32-bit lane is a row's (even, odd) pair of bf16
};
#else
using X = float;
struct W {
  V even, odd;
};
#endif

// Pairs of inputs in a vector of codes.
template <int F>
constexpr int kPairs = F == kF32 || F == kBF16 ? 1 : F == kQ8_0 || F == kFP8 ? 2 : 4;

FT_INLINE int64_t group_bytes(int format, int64_t k) {
  const Layout l = kLayouts[format];
  return l.header + (k + l.inputs - 1) / l.inputs * l.bytes;
}
FT_INLINE int64_t padded_inputs(int format, int64_t k) {
  const int64_t inputs = kLayouts[format].inputs;
  return (k + inputs - 1) / inputs * inputs;
}

// 16 bytes of E4M3 over 256, which half precision holds exactly: their exponents differ by 8.
FT_INLINE V e4m3_over_256(const void* p) {
  __m256i half = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p));
  half = _mm256_and_si256(_mm256_slli_epi16(half, 7), _mm256_set1_epi16((short)0xbfff));
  return load_fp16(&half);
}

// What `pair` yields is the code times this power of two, which `scale` takes back: exact.
#ifdef FT_DOT
template <int F>
constexpr float kExcess = 1;
#elif defined(__AVX512F__)
template <int F>
constexpr float kExcess = F == kQ8_0 ? 16777216.0f : 1;
#else
template <int F>
constexpr float kExcess = F == kQ8_0 || F == kQ4_0 ? 16777216.0f : F == kMXFP4 || F == kNVFP4 ? 33554432.0f : 1;
#endif

template <int F>
FT_INLINE V raw_scale(const uint8_t* block, int which) {
  if constexpr (F == kQ8_0) return load_fp16(block);
  if constexpr (F == kQ4_0) return load_fp16(block + 256);
  if constexpr (F == kMXFP4) return as_float(shift_left(load_bytes(block + 256), 23));
  if constexpr (F == kNVFP4) return e4m3_over_256(block + 256 + 16 * which);
  if constexpr (F == kFP8) return load(block);
  return set1(1.0f);
}
template <int F>
FT_INLINE V scale(const uint8_t* block, int which) {
  V s = raw_scale<F>(block, which);
  return kExcess<F> == 1 ? s : mul(s, set1(1 / kExcess<F>));
}

// What the sum of a group is multiplied with at last.
template <int F>
FT_INLINE V row_scale(const uint8_t* group) {
  return F == kNVFP4 ? mul(load(group), set1(256.0f)) : set1(1.0f);
}

#ifdef FT_DOT

alignas(64) constexpr uint16_t kCodes4[2][32] = {
    // code - 8, twice
    {0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0,
     0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0},
    // E2M1, twice
    {0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0,
     0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0}};

// The bf16 of each magnitude of a byte, as two tables of half words' bytes.
struct ByteTable {
  alignas(64) uint8_t low[128], high[128];
};
constexpr uint16_t bf16_of(unsigned significand, int exponent) {  // significand * 2^exponent, significand below 256
  if (significand == 0) return 0;
  int top = 7;
  while ((significand >> top) == 0) --top;
  return (uint16_t)(((127 + exponent + top) << 7) | ((significand << (7 - top)) & 0x7f));
}
constexpr ByteTable byte_table(bool e4m3) {
  ByteTable t{};
  for (unsigned m = 0; m < 128; ++m) {
    uint16_t v = !e4m3 ? bf16_of(m, 0) : m < 8 ? bf16_of(m, -9) : bf16_of(8 + (m & 7), (int)(m >> 3) - 10);
    t.low[m] = (uint8_t)v;
    t.high[m] = (uint8_t)(v >> 8);
  }
  return t;
}
constexpr ByteTable kBytes[2] = {byte_table(false), byte_table(true)};

struct Bytes {
  __m512i low, high;  // of each code's bf16
};
template <bool E4M3>
FT_INLINE Bytes look_up(const uint8_t* codes) {
  const ByteTable& t = kBytes[E4M3];
  // The first two inputs of four rows, then their last two, so that interleaving puts each row into its own lane.
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  __m512i x = _mm512_shuffle_epi8(_mm512_loadu_si512(codes), order);
  __m512i index = E4M3 ? x : _mm512_abs_epi8(x);
  __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(t.low), index, _mm512_load_si512(t.low + 64));
  __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(t.high), index, _mm512_load_si512(t.high + 64));
  high = _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi8((char)0x80), 0xf8);  // high | (x & sign)
  return {low, high};
}

// A vector of 4-bit codes, and the same a byte further: two of its four pairs then need no shift, which is what the
// shuffling ports are short of. The byte after a block's codes is one of its scales.
struct Codes4 {
  __m512i here, next;
};

template <int F>
FT_INLINE auto codes(const uint8_t* block, int q) {
  if constexpr (F == kQ8_0) {
    return look_up<false>(block + 32 + 64 * q);
  } else if constexpr (F == kFP8) {
    return look_up<true>(block + 64 + 64 * q);
  } else if constexpr (F == kBF16) {
    return _mm512_loadu_si512(block + 64 * q);
  } else {
    Codes4 c{_mm512_loadu_si512(block + 64 * q), _mm512_loadu_si512(block + 64 * q + 1)};
    __asm__("" : "+v"(c.here), "+v"(c.next));  // loaded once: most of these loads cross a cache line
    return c;
  }
}

template <int F, class C>
FT_INLINE W pair(const C& c, int i) {
  if constexpr (F == kBF16) {
    return {c};
  } else if constexpr (F == kQ8_0 || F == kFP8) {
    return {i == 0 ? _mm512_unpacklo_epi8(c.low, c.high) : _mm512_unpackhi_epi8(c.low, c.high)};
  } else {  // bits above the code are ignored by vpermw, or choose the table's copy
    __m512i from = i < 2 ? c.here : c.next;
    if (i % 2 == 1) from = _mm512_srli_epi16(from, 4);
    return {_mm512_permutexvar_epi16(from, _mm512_load_si512(kCodes4[F != kQ4_0]))};
  }
}

#else

#ifdef __AVX512F__
alignas(64) constexpr float kCodes4[2][16] = {{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7},
                                              {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6}};
FT_INLINE V code4(I raw, int shift, bool e2m1) {  // bits above the code are ignored by vpermps
  return {_mm512_permutexvar_ps(_mm512_srli_epi32(raw.v, shift), _mm512_load_ps(kCodes4[e2m1]))};
}
#else
// A vector's codes as signed bytes: those in the low halves of the bytes, and those in the high halves. E2M1 is doubled.
struct Nibbles {
  I low, high;
};
FT_INLINE Nibbles look_up(I raw, bool e2m1) {
  const __m128i q4 = _mm_setr_epi8(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m128i fp4 = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const __m256i table = _mm256_broadcastsi128_si256(e2m1 ? fp4 : q4);
  const I low = both(raw, 0x0f0f0f0f), high = both(shift_right(raw, 4), 0x0f0f0f0f);
  return {{_mm256_shuffle_epi8(table, low.a), _mm256_shuffle_epi8(table, low.b)},
          {_mm256_shuffle_epi8(table, high.a), _mm256_shuffle_epi8(table, high.b)}};
}
#endif

// Byte `Byte` of each lane as E4M3. A subnormal is first read as 2^-7 (1 + m / 8), and put right.
template <int Byte>
FT_INLINE V e4m3(I raw) {
  I magnitude = both(Byte == 3 ? shift_right(raw, 4) : shift_left(raw, 20 - 8 * Byte), 0x07f00000);
  I sign = both(shift_left(raw, 24 - 8 * Byte), 0x80000000);
#ifdef __AVX512F__
  __m512 v = _mm512_castsi512_ps(_mm512_add_epi32(magnitude.v, _mm512_set1_epi32(120 << 23)));
  __mmask16 small = _mm512_cmplt_epi32_mask(magnitude.v, _mm512_set1_epi32(1 << 23));
  v = _mm512_mask_sub_ps(v, small, _mm512_add_ps(v, v), _mm512_set1_ps(1.0f / 64));
  return {_mm512_or_ps(v, _mm512_castsi512_ps(sign.v))};
#else
  auto half = [](__m256i m, __m256i s) __attribute__((always_inline)) {
    __m256 v = _mm256_castsi256_ps(_mm256_add_epi32(m, _mm256_set1_epi32(120 << 23)));
    __m256 small = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(1 << 23), m));
    v = _mm256_blendv_ps(v, _mm256_sub_ps(_mm256_add_ps(v, v), _mm256_set1_ps(1.0f / 64)), small);
    return _mm256_or_ps(v, _mm256_castsi256_ps(s));
  };
  return {half(magnitude.a, sign.a), half(magnitude.b, sign.b)};
#endif
}

template <int F>
FT_INLINE auto codes(const uint8_t* block, int q) {
  if constexpr (F == kF32)
    return W{load(block + 128 * q), load(block + 128 * q + 64)};
  else
#ifndef __AVX512F__
  if constexpr (F == kQ4_0 || F == kMXFP4 || F == kNVFP4)
    return look_up(load_bits(block + 64 * q), F != kQ4_0);
  else
#endif
    return load_bits(block + (F == kQ8_0 ? 32 : F == kFP8 ? 64 : 0) + 64 * q);
}

template <int F, class C>
FT_INLINE W pair(const C& c, int i) {
  if constexpr (F == kF32) {
    return c;
  } else if constexpr (F == kBF16) {
    return {low_half(c), high_half(c)};
  } else if constexpr (F == kQ8_0) {
    if (i == 0) return {byte_scaled<0>(c), byte_scaled<1>(c)};
    return {byte_scaled<2>(c), byte_scaled<3>(c)};
  } else if constexpr (F == kFP8) {
    if (i == 0) return {e4m3<0>(c), e4m3<1>(c)};
    return {e4m3<2>(c), e4m3<3>(c)};
  } else {
#ifdef __AVX512F__
    return {code4(c, 4 * i, F != kQ4_0), code4(c, 4 * i + 16, F != kQ4_0)};
#else
    const I bytes = i % 2 == 0 ? c.low : c.high;
    if (i < 2) return {byte_scaled<0>(bytes), byte_scaled<2>(bytes)};
    return {byte_scaled<1>(bytes), byte_scaled<3>(bytes)};
#endif
  }
}

#endif
