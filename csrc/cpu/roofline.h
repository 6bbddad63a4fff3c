// What the machine can do at best, measured with the same threads and vectors as the kernels.

#ifdef __AVX512F__
constexpr int kChains = 10;
#else
constexpr int kChains = 5;
#endif

#ifndef FT_DOT
static float fma_loop(int64_t count) {
  float results[pool::kMaxThreads];
  int64_t threads = pool::threads();
  parallel(threads, false, [&](int64_t task, int) {
    V acc[kChains];
#pragma GCC unroll 10
    for (int i = 0; i < kChains; ++i) acc[i] = set1((float)i);
    V a = set1(0.999f), b = set1(1e-3f);
    for (int64_t n = 0; n < count; n += kChains) {
#pragma GCC unroll 10
      for (int i = 0; i < kChains; ++i) acc[i] = fma(acc[i], a, b);
    }
    V total = zero();
#pragma GCC unroll 10
    for (int i = 0; i < kChains; ++i) total = add(total, acc[i]);
    results[task] = sum(total);
  });
  float all = 0;
  for (int64_t i = 0; i < threads; ++i) all += results[i];
  return all;
}

#endif
#ifdef FT_DOT
static float dot_loop(int64_t count) {
  float results[pool::kMaxThreads];
  int64_t threads = pool::threads();
  parallel(threads, false, [&](int64_t task, int) {
    V acc[kChains];
#pragma GCC unroll 10
    for (int i = 0; i < kChains; ++i) acc[i] = set1((float)i);
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f7f), b = (__m512bh)_mm512_set1_epi16(0x3a83);
    for (int64_t n = 0; n < count; n += kChains) {
#pragma GCC unroll 10
      for (int i = 0; i < kChains; ++i) acc[i].v = _mm512_dpbf16_ps(acc[i].v, a, b);
    }
    V total = zero();
#pragma GCC unroll 10
    for (int i = 0; i < kChains; ++i) total = add(total, acc[i]);
    results[task] = sum(total);
  });
  float all = 0;
  for (int64_t i = 0; i < threads; ++i) all += results[i];
  return all;
}
#else
static uint64_t read_loop(const uint8_t* data, int64_t bytes) {
  uint64_t sums[pool::kMaxThreads] = {};
  const int64_t piece = (int64_t)1 << 18, count = bytes / piece;
  parallel(count, false, [&](int64_t task, int thread) {
    const uint8_t* p = data + task * piece;
    V acc[4] = {zero(), zero(), zero(), zero()};
    for (int64_t i = 0; i < piece; i += 256)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) acc[j] = max(acc[j], load(p + i + 64 * j));
    sums[thread] += (uint64_t)(largest(max(max(acc[0], acc[1]), max(acc[2], acc[3]))) > 0);
  });
  uint64_t all = 0;
  for (uint64_t s : sums) all += s;
  return all;
}
#endif
