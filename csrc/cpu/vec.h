// Sixteen fp32 lanes, as one zmm or two ymm registers. Both spell the same operations in the same order, so that a kernel
// written with them gives the same bits on either instruction set. Included only by kernels.cpp, inside the ISA's namespace.
#pragma once

#define FT_INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__

struct V {
  __m512 v;
};
struct I {
  __m512i v;
};
FT_INLINE V zero() { return {_mm512_setzero_ps()}; }
FT_INLINE V set1(float x) { return {_mm512_set1_ps(x)}; }
FT_INLINE V load(const void* p) { return {_mm512_loadu_ps(p)}; }
FT_INLINE void store(float* p, V a) { _mm512_storeu_ps(p, a.v); }
FT_INLINE V load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)}; }
FT_INLINE void store_n(float* p, V a, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a.v); }
FT_INLINE V add(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
FT_INLINE V sub(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
FT_INLINE V mul(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
FT_INLINE V div(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
FT_INLINE V fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
FT_INLINE V fnma(V a, V b, V c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
FT_INLINE V max(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }  // b where either is NaN
FT_INLINE V min(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
FT_INLINE V zero_below(V a, V x, float bound) {  // a, or 0 in lanes where x < bound
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLT_UQ), a.v)};
}
FT_INLINE I load_bits(const void* p) { return {_mm512_loadu_si512(p)}; }
FT_INLINE I round_int(V a) { return {_mm512_cvtps_epi32(a.v)}; }
FT_INLINE V to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
FT_INLINE V power_of_two(I n) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))};
}
FT_INLINE V low_half(I a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
FT_INLINE V high_half(I a) { return {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32((int)0xffff0000)))}; }
FT_INLINE V load_bf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16))};
}
FT_INLINE V load_fp16(const void* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))}; }
// byte `Byte` of each lane as a signed number times 2^24
template <int Byte>
FT_INLINE V byte_scaled(I a) {
  const __m512i select = _mm512_broadcast_i32x4(_mm_setr_epi8(
      -1, -1, -1, Byte, -1, -1, -1, 4 + Byte, -1, -1, -1, 8 + Byte, -1, -1, -1, 12 + Byte));
  return {_mm512_cvtepi32_ps(_mm512_shuffle_epi8(a.v, select))};
}
FT_INLINE I shift_right(I a, int n) { return {_mm512_srli_epi32(a.v, n)}; }
FT_INLINE I shift_left(I a, int n) { return {_mm512_slli_epi32(a.v, n)}; }
FT_INLINE I both(I a, uint32_t bits) { return {_mm512_and_si512(a.v, _mm512_set1_epi32((int)bits))}; }
FT_INLINE V as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
FT_INLINE I load_bytes(const void* p) { return {_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p))}; }
FT_INLINE __m256 lower(V a) { return _mm512_castps512_ps256(a.v); }
FT_INLINE __m256 upper(V a) { return _mm512_extractf32x8_ps(a.v, 1); }

#else

struct V {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};
FT_INLINE V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
FT_INLINE V set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
FT_INLINE V load(const void* p) { return {_mm256_loadu_ps((const float*)p), _mm256_loadu_ps((const float*)p + 8)}; }
FT_INLINE void store(float* p, V x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
FT_INLINE V load_n(const float* p, int n) {
  alignas(32) float t[16] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
}
FT_INLINE void store_n(float* p, V x, int n) {
  alignas(32) float t[16];
  store(t, x);
  for (int i = 0; i < n; ++i) p[i] = t[i];
}
FT_INLINE V add(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
FT_INLINE V sub(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
FT_INLINE V mul(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
FT_INLINE V div(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
FT_INLINE V fma(V x, V y, V z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
FT_INLINE V fnma(V x, V y, V z) { return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
FT_INLINE V max(V x, V y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
FT_INLINE V min(V x, V y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
FT_INLINE V zero_below(V y, V x, float bound) {
  __m256 low = _mm256_set1_ps(bound);
  return {_mm256_and_ps(_mm256_cmp_ps(x.a, low, _CMP_NLT_UQ), y.a), _mm256_and_ps(_mm256_cmp_ps(x.b, low, _CMP_NLT_UQ), y.b)};
}
FT_INLINE I load_bits(const void* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1)};
}
FT_INLINE I round_int(V x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
FT_INLINE V to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
FT_INLINE V power_of_two(I n) {
  __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.a, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.b, bias), 23))};
}
FT_INLINE V low_half(I x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(x.a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(x.b, 16))};
}
FT_INLINE V high_half(I x) {
  __m256i mask = _mm256_set1_epi32((int)0xffff0000);
  return {_mm256_castsi256_ps(_mm256_and_si256(x.a, mask)), _mm256_castsi256_ps(_mm256_and_si256(x.b, mask))};
}
FT_INLINE __m256 widen_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
FT_INLINE V load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
FT_INLINE V load_fp16(const void* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p + 1))};
}
template <int Byte>
FT_INLINE V byte_scaled(I x) {
  const __m256i select = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      -1, -1, -1, Byte, -1, -1, -1, 4 + Byte, -1, -1, -1, 8 + Byte, -1, -1, -1, 12 + Byte));
  return {_mm256_cvtepi32_ps(_mm256_shuffle_epi8(x.a, select)), _mm256_cvtepi32_ps(_mm256_shuffle_epi8(x.b, select))};
}
FT_INLINE I shift_right(I x, int n) { return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)}; }
FT_INLINE I shift_left(I x, int n) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
FT_INLINE I both(I x, uint32_t bits) {
  __m256i mask = _mm256_set1_epi32((int)bits);
  return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
FT_INLINE V as_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
FT_INLINE I load_bytes(const void* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)((const uint8_t*)p + 8)))};
}
FT_INLINE __m256 lower(V x) { return x.a; }
FT_INLINE __m256 upper(V x) { return x.b; }

#endif

FT_INLINE float sum(V x) {
  __m256 a = _mm256_add_ps(lower(x), upper(x));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
FT_INLINE float largest(V x) {
  __m256 a = _mm256_max_ps(lower(x), upper(x));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

// e^x to about 1e-7 relative; exactly 1 at 0, 0 below -87.3, saturated above 88; NaN stays NaN.
FT_INLINE V exp(V x) {
  V clamped = max(set1(-87.33f), min(set1(88.0f), x));
  I n = round_int(mul(clamped, set1(1.44269504088896341f)));
  V nf = to_float(n);
  V r = fnma(nf, set1(1.428606765330187e-06f), fnma(nf, set1(0.693145751953125f), clamped));
  V p = set1(1.0f / 5040.0f);
  p = fma(p, r, set1(1.0f / 720.0f));
  p = fma(p, r, set1(1.0f / 120.0f));
  p = fma(p, r, set1(1.0f / 24.0f));
  p = fma(p, r, set1(1.0f / 6.0f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return zero_below(mul(p, power_of_two(n)), x, -87.33f);
}
FT_INLINE float exp1(float x) {
  alignas(64) float t[16];
  store(t, exp(set1(x)));
  return t[0];
}
FT_INLINE V sigmoid(V x) { return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), x)))); }
FT_INLINE V silu(V x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

// Nearest even, as fp32 or as 16 halves; NaN stays NaN.
FT_INLINE V round_bf16(V x) {
#ifdef __AVX512F__
  __m512i bits = _mm512_castps_si512(x.v), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  up = _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
  return {_mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32((int)0xffff0000)))};
#else
  auto half = [](__m256 v) __attribute__((always_inline)) {
    __m256i bits = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)));
    __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(up), quiet, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_and_ps(chosen, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000)));
  };
  return {half(x.a), half(x.b)};
#endif
}
#ifdef __AVX512F__
FT_INLINE __m256i bf16_bits(V x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(round_bf16(x).v), 16)); }
#endif
