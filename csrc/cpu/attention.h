// Causal attention over paged keys and values. Keys are taken in blocks of 32 at absolute positions; the online softmax
// starts afresh every 512 keys and the parts are merged in order. Both grids depend on positions alone, so neither the
// chunking of a prompt, nor its neighbours in a batch, nor the number of threads can change a row's bits.
//
// Where keys and values are kept as bf16 and activations are bf16 too, queries and probabilities are rounded to bf16 and
// multiplied in pairs, as tile.h has it: two neighbouring values of a head in scores, two neighbouring keys in the sum of
// values. Otherwise everything is fp32. `Pairs` says which.
//
// Pairs are multiplied where they lie in the pages (pages.h), whatever stands at positions that no row sees: their scores
// become -inf, and their values are left out. Everything else is brought to the same form in fp32 first.

constexpr int64_t kPart = 512;
constexpr int64_t kKeys = 2 * kBlock;
#ifdef __AVX512F__
template <bool Pairs>
constexpr int kTogether = Pairs ? 8 : 4;  // queries that share each loaded key or value vector
template <bool Pairs>
constexpr int kColumns = Pairs ? 2 : 4;  // vectors of a head's output held in registers
#else
template <bool>
constexpr int kTogether = 2;
template <bool>
constexpr int kColumns = 2;
#endif

// What one step along a reduction multiplies: a value, or a pair of bf16 in 32 bits.
template <bool Pairs>
constexpr int kStep = Pairs ? 2 : 1;

FT_INLINE W pairs_of(I bits) {
#ifdef FT_DOT
  return {bits.v};
#else
  return {low_half(bits), high_half(bits)};
#endif
}
template <bool Pairs>
FT_INLINE auto load_step(const float* from, int64_t left = 16) {
  if constexpr (Pairs)
    return pairs_of(load_pairs((const uint8_t*)from, left));
  else
    return load(from);
}

template <int N, int C>
FT_INLINE void accumulate(V (&sums)[N][C], const V (&values)[C], const float* const (&x)[N], int64_t at) {
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    V xv = set1(x[n][at]);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) sums[n][c] = fma(xv, values[c], sums[n][c]);
  }
}

// Sixteen values as the other side of a product takes them.
template <bool Pairs>
struct Factor {
  using Type = float;
};
template <>
struct Factor<true> {
  using Type = X;
};
FT_INLINE void store_factor(float* to, V v, bool round) { store(to, round ? round_bf16(v) : v); }
#ifdef FT_DOT
FT_INLINE void store_factor(X* to, V v, bool) { _mm256_storeu_si256((__m256i*)to, bf16_bits(v)); }
#endif

struct Span {
  int64_t seq, first, rows, head, part0, part1;  // rows [first, first + rows) of the batch, parts [part0, part1)
};

struct Attention {
  const Batch& b;
  int64_t layer;
  const float* q;
  int64_t heads, kv_heads, dim, padded, group;
  float scale;
  int64_t window;      // keys a row sees, or 0 for all
  const float* sinks;  // [heads] or nullptr
  float* out;
  float* parts;  // [rows * heads][most_parts][padded + 2], only when spans cover single parts
  int64_t first_part, most_parts;
};

FT_INLINE int64_t first_key(int64_t position, int64_t window) { return window == 0 || position < window ? 0 : position + 1 - window; }

// Working memory of one task for `count` (row, head) queries; `q` and `p` are factors of the products.
struct Work {
  float *rows, *keys_t, *values_f32, *q, *acc, *total, *scores, *p, *m, *l, *total_m, *total_l;
  int64_t *position, *start, *active;
  // The two blocks of the keys at hand, of 32 bits a step: keys are [steps of a head][kBlock], values [steps of a block][stride].
  const float *keys[2], *values[2];
  int64_t stride;
  // The next two: asked for while these are computed, because hardware prefetchers stop at every 4 KiB and work fills the
  // window that would hide the misses. Where there is none: what is cached.
  const uint8_t *next_keys[2], *next_values[2];
};

FT_INLINE void ask_for(const uint8_t* const (&blocks)[2], int64_t at) {
  _mm_prefetch((const char*)blocks[0] + at, _MM_HINT_T1);
  _mm_prefetch((const char*)blocks[1] + at, _MM_HINT_T1);
}

FT_INLINE int64_t work_bytes(int64_t count, int64_t padded) {
  return (3 * kKeys * padded + 3 * count * padded + 2 * count * kKeys + 4 * count) * 4 + 3 * count * 8 + 64;
}

FT_INLINE Work lay_out(void* memory, int64_t count, int64_t padded) {
  Work w;
  float* at = (float*)memory;
  auto take = [&](int64_t n) {
    float* p = at;
    at += n;
    return p;
  };
  w.rows = take(kKeys * padded);
  w.keys_t = take(kKeys * padded);
  w.values_f32 = take(kKeys * padded);
  w.q = take(count * padded);
  w.acc = take(count * padded);
  w.total = take(count * padded);
  w.scores = take(count * kKeys);
  w.p = take(count * kKeys);
  w.m = take(count);
  w.l = take(count);
  w.total_m = take(count);
  w.total_l = take(count);
  w.position = (int64_t*)(((uintptr_t)at + 7) / 8 * 8);
  w.start = w.position + count;
  w.active = w.start + count;
  return w;
}

// Keys before `low` and from `length` on are seen by no row of the span; their pages may have been given away.
template <bool Pairs>
static void load_keys(const Attention& a, int64_t seq, int64_t head, int64_t begin, int64_t low, int64_t length, Work& w) {
  auto find = [&](int64_t position, int64_t which) { return kv_at(a.b, a.layer, seq, position, which, head, a.kv_heads, a.dim); };
  // The block at `at`, or its neighbour in the place of one that nobody sees.
  auto blocks = [&](int64_t at, int64_t which, const uint8_t* (&found)[2]) __attribute__((always_inline)) {
    found[0] = find(at + kBlock <= low ? at + kBlock : at, which);
    found[1] = find(at + kBlock < length ? at + kBlock : at, which);
  };
  w.stride = Pairs ? a.dim : a.padded;
  const uint8_t *keys[2], *values[2];
  if (a.b.kv_bf16) {
    blocks(begin, 0, keys);
    blocks(begin, 1, values);
  }
  if constexpr (Pairs) {
    const int64_t next = begin + kKeys < length ? begin + kKeys : begin;
    blocks(next, 0, w.next_keys);
    blocks(next, 1, w.next_values);
  }
  for (int64_t h = 0; h < 2; ++h) {
    if constexpr (Pairs) {
      w.keys[h] = (const float*)keys[h];
      w.values[h] = (const float*)values[h];
    } else {
      float *to_keys = w.keys_t + h * kBlock * a.padded, *to_values = w.values_f32 + h * kBlock * a.padded;
      const int64_t at = begin + h * kBlock;
      if (a.b.kv_bf16)
        widen(keys[h], values[h], a.dim, a.padded, to_keys, to_values);
      else
        load_f32([&](int64_t j, int64_t which) { return find(at + j, which); }, low - at, length - at, a.dim, a.padded, w.rows, to_keys,
                 to_values);
      w.keys[h] = to_keys;
      w.values[h] = to_values;
    }
  }
}

template <bool Pairs, int N>
FT_INLINE void score(const Attention& a, Work& w, const int64_t* ids) {
  using F = typename Factor<Pairs>::Type;
  V s[N][2];
  const F* q[N];
  clear(s);
  for (int n = 0; n < N; ++n) q[n] = (const F*)w.q + ids[n] * a.padded;
  for (int64_t d = 0; d < a.dim; d += kStep<Pairs>) {
    const int64_t at = d / kStep<Pairs> * kBlock;
    if constexpr (Pairs) ask_for(w.next_keys, 4 * at);
    const decltype(load_step<Pairs>(w.keys[0])) k[2] = {load_step<Pairs>(w.keys[0] + at), load_step<Pairs>(w.keys[1] + at)};
    accumulate(s, k, q, d);
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    store(w.scores + ids[n] * kKeys, mul(s[n][0], set1(a.scale)));
    store(w.scores + ids[n] * kKeys + 16, mul(s[n][1], set1(a.scale)));
  }
}

// Turns scores of keys [firsts, counts) into probabilities relative to the new maximum, those of other keys into 0; `factor`
// is what the sums before are to be multiplied with.
template <bool Pairs, int N>
FT_INLINE void soften(Work& w, const int64_t* ids, const int64_t* firsts, const int64_t* counts, float* factor) {
  using F = typename Factor<Pairs>::Type;
  alignas(64) float tops[16] = {}, factors[16];
  for (int n = 0; n < N; ++n) {
    float *s = w.scores + ids[n] * kKeys, &m = w.m[ids[n]];
    for (int64_t j = 0; j < firsts[n]; ++j) s[j] = -__builtin_inff();
    for (int64_t j = counts[n]; j < kKeys; ++j) s[j] = -__builtin_inff();
    float top = largest(max(load(s), load(s + 16)));
    if (m > top) top = m;
    tops[n] = m - top;
    m = top;
  }
  store(factors, exp(load(tops)));
  for (int n = 0; n < N; ++n) {
    const float* s = w.scores + ids[n] * kKeys;
    F* p = (F*)w.p + ids[n] * kKeys;
    V top = set1(w.m[ids[n]]), x = exp(sub(load(s), top)), y = exp(sub(load(s + 16), top));
    if constexpr (Pairs) {
      x = round_bf16(x);
      y = round_bf16(y);
    }
    store_factor(p, x, false);
    store_factor(p + 16, y, false);
    factor[n] = factors[n];
    w.l[ids[n]] = __builtin_fmaf(w.l[ids[n]], factor[n], sum(add(x, y)));
  }
}

// One step's values for one query alone: of a pair, those of a key it does not see are taken as 0, whatever they are.
template <bool Pairs>
FT_INLINE auto seen_step(const float* from, int64_t left, int64_t key, int64_t first, int64_t count) {
  if constexpr (Pairs)
    return pairs_of(both(load_pairs((const uint8_t*)from, left), (key < first ? 0 : 0xffff) | (key + 1 < count ? 0xffff0000 : 0)));
  else
    return load(from);
}

// acc = acc * factor + sum of p[j] * value[j] in the order of j from `firsts` to `counts`, for N queries and C vectors of the head.
template <bool Pairs, int N, int C>
FT_INLINE void gather(const Attention& a, Work& w, const int64_t* ids, const float* factor, const int64_t* firsts,
                      const int64_t* counts, int64_t column) {
  using F = typename Factor<Pairs>::Type;
  using Step = decltype(load_step<Pairs>(w.values[0]));
  constexpr int64_t step = kStep<Pairs>, steps = kBlock / step;
  const int64_t left = C > 1 || !Pairs ? 16 : a.dim - column;
  const float* const values[2] = {w.values[0] + column, w.values[1] + column - steps * w.stride};
  V acc[N][C];
  const F* p[N];
  int64_t from = 0, common = kKeys / step;  // steps of which every query sees all keys
  for (int n = 0; n < N; ++n) {
    p[n] = (const F*)w.p + ids[n] * kKeys;
    if ((firsts[n] + step - 1) / step > from) from = (firsts[n] + step - 1) / step;
    if (counts[n] / step < common) common = counts[n] / step;
  }
  if (from > common) from = common;
  auto alone = [&](int n, int64_t j, int64_t end) __attribute__((always_inline)) {
    for (; j < end; ++j) {
      Step v[C];
      V one[1][C];
      const F* const factors[1] = {p[n]};
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        v[c] = seen_step<Pairs>(values[j >= steps] + j * w.stride + 16 * c, left, j * step, firsts[n], counts[n]);
        one[0][c] = acc[n][c];
      }
      accumulate(one, v, factors, j * step);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[n][c] = one[0][c];
    }
  };
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[n][c] = mul(load(w.acc + ids[n] * a.padded + column + 16 * c), set1(factor[n]));
    alone(n, firsts[n] / step, from);
  }
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t j = h == 0 ? from : (from > steps ? from : steps), end = h == 0 ? (common < steps ? common : steps) : common; j < end; ++j) {
      if constexpr (Pairs && C == 2) ask_for(w.next_values, 32 * column + 64 * j);  // as many lines as are multiplied
      Step v[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) v[c] = load_step<Pairs>(values[h] + j * w.stride + 16 * c, left);
      accumulate(acc, v, p, j * step);
    }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    alone(n, common > firsts[n] / step ? common : firsts[n] / step, (counts[n] + step - 1) / step);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) store(w.acc + ids[n] * a.padded + column + 16 * c, acc[n][c]);
  }
}

template <bool Pairs, int N>
static __attribute__((noinline)) void absorb(const Attention& a, Work& w, const int64_t* ids, int64_t begin) {
  float factor[N];
  int64_t firsts[N], counts[N];
  for (int n = 0; n < N; ++n) {
    int64_t q = ids[n];
    counts[n] = w.position[q] + 1 - begin < kKeys ? w.position[q] + 1 - begin : kKeys;
    firsts[n] = w.start[q] > begin ? w.start[q] - begin : 0;
  }
  score<Pairs, N>(a, w, ids);
  soften<Pairs, N>(w, ids, firsts, counts, factor);
  int64_t column = 0;
  for (; column + 16 * kColumns<Pairs> <= a.dim; column += 16 * kColumns<Pairs>)
    gather<Pairs, N, kColumns<Pairs>>(a, w, ids, factor, firsts, counts, column);
  for (; column < a.padded; column += 16) gather<Pairs, N, 1>(a, w, ids, factor, firsts, counts, column);
  for (int h = 0; h < 2; ++h) {
    w.next_keys[h] = (const uint8_t*)w.keys[h];
    w.next_values[h] = (const uint8_t*)w.values[h];
  }
}

// Fewer queries than `kTogether` at once, as a decode step has them: one by one, each addition would wait for the one before.
template <bool Pairs, int N = kTogether<Pairs> - 1>
static void absorb_rest(const Attention& a, Work& w, const int64_t* ids, int64_t count, int64_t begin) {
  if constexpr (N > 0) {
    if (count == N) return absorb<Pairs, N>(a, w, ids, begin);
    absorb_rest<Pairs, N - 1>(a, w, ids, count, begin);
  }
}

// (m, l, acc) of the keys so far, merged with those of the next part.
FT_INLINE void merge(float& m, float& l, float* acc, float part_m, float part_l, const float* part, int64_t padded) {
  float top = m > part_m ? m : part_m;
  float keep = exp1(m - top), take = exp1(part_m - top);
  l = __builtin_fmaf(part_l, take, l * keep);
  for (int64_t i = 0; i < padded; i += 16)
    store(acc + i, fma(load(part + i), set1(take), mul(load(acc + i), set1(keep))));
  m = top;
}

FT_INLINE void finish(const Attention& a, int64_t row, int64_t head, float m, float l, float* acc) {
  float* out = a.out + (row * a.heads + head) * a.dim;
  if (a.sinks != nullptr) {
    const float sink = a.sinks[head], top = m > sink ? m : sink, keep = exp1(m - top);
    l = __builtin_fmaf(l, keep, exp1(sink - top));
    for (int64_t i = 0; i < a.padded; i += 16) store(acc + i, mul(load(acc + i), set1(keep)));
  }
  for (int64_t i = 0; i < a.dim; i += 16) store_some(out + i, div(load(acc + i), set1(l)), a.dim - i);
}

template <bool Pairs>
static void attend(const Attention& a, const Span& s, int thread) {
  const int64_t count = s.rows * a.group;
  Work w = lay_out(pool::thread_scratch(thread, work_bytes(count, a.padded)), count, a.padded);
  int64_t length = 0, low = INT64_MAX;
  for (int64_t i = 0; i < count; ++i) {
    int64_t row = s.first + i / a.group, head = s.head * a.group + i % a.group;
    w.position[i] = a.b.positions[row];
    w.start[i] = first_key(w.position[i], a.window);
    if (w.position[i] + 1 > length) length = w.position[i] + 1;
    if (w.start[i] < low) low = w.start[i];
    const float* q = a.q + (row * a.heads + head) * a.dim;
    for (int64_t d = 0; d < a.padded; d += 16)
      store_factor((typename Factor<Pairs>::Type*)w.q + i * a.padded + d, load_some(q + d, a.dim - d), Pairs);
  }
  for (int64_t part = low / kPart > s.part0 ? low / kPart : s.part0; part < s.part1 && part * kPart < length; ++part) {
    for (int64_t i = 0; i < count; ++i) {
      w.m[i] = -__builtin_inff();
      w.l[i] = 0;
      for (int64_t d = 0; d < a.padded; d += 16) store(w.acc + i * a.padded + d, zero());
    }
    int64_t end = (part + 1) * kPart < length ? (part + 1) * kPart : length;
    for (int64_t begin = part * kPart > low ? part * kPart : low / kKeys * kKeys; begin < end; begin += kKeys) {
      FlushSubnormals flush;
      load_keys<Pairs>(a, s.seq, s.head, begin, low, length, w);
      int64_t active = 0, n = 0;
      for (int64_t i = 0; i < count; ++i)
        if (w.position[i] >= begin && w.start[i] < begin + kKeys) w.active[active++] = i;
      for (; n + kTogether<Pairs> <= active; n += kTogether<Pairs>) absorb<Pairs, kTogether<Pairs>>(a, w, w.active + n, begin);
      absorb_rest<Pairs>(a, w, w.active + n, active - n, begin);
    }
    for (int64_t i = 0; i < count; ++i) {
      if (w.position[i] < part * kPart || w.start[i] >= (part + 1) * kPart) continue;
      float* acc = w.acc + i * a.padded;
      if (a.parts != nullptr) {
        int64_t row = s.first + i / a.group, head = s.head * a.group + i % a.group;
        float* to = a.parts + ((row * a.heads + head) * a.most_parts + part - a.first_part) * (a.padded + 2);
        to[0] = w.m[i];
        to[1] = w.l[i];
        __builtin_memcpy(to + 2, acc, a.padded * sizeof(float));
      } else if (part == w.start[i] / kPart) {
        w.total_m[i] = w.m[i];
        w.total_l[i] = w.l[i];
        __builtin_memcpy(w.total + i * a.padded, acc, a.padded * sizeof(float));
      } else {
        merge(w.total_m[i], w.total_l[i], w.total + i * a.padded, w.m[i], w.l[i], acc, a.padded);
      }
    }
  }
  if (a.parts == nullptr)
    for (int64_t i = 0; i < count; ++i)
      finish(a, s.first + i / a.group, s.head * a.group + i % a.group, w.total_m[i], w.total_l[i],
             w.total + i * a.padded);
}

static void attention(const Batch& b, int64_t layer, const float* q, int64_t heads, int64_t kv_heads, int64_t dim, float scale,
                      int64_t window, const float* sinks, float* out) {
  Attention a{b, layer, q, heads, kv_heads, dim, (dim + 15) / 16 * 16, heads / kv_heads, scale, window, sinks, out, nullptr, INT64_MAX, 0};
  const int64_t queries = a.padded <= 128 ? 64 : 32, rows = queries / a.group < 1 ? 1 : queries / a.group;
  int64_t tiles = 0, keys = 0;
  for (int64_t s = 0; s < b.seqs; ++s) tiles += (b.row_start[s + 1] - b.row_start[s] + rows - 1) / rows;
  int64_t last_part = 0;
  for (int64_t r = 0; r < b.rows; ++r) {
    int64_t start = first_key(b.positions[r], window);
    keys += b.positions[r] + 1 - start;
    if (start / kPart < a.first_part) a.first_part = start / kPart;
    if (b.positions[r] / kPart > last_part) last_part = b.positions[r] / kPart;
  }
  a.most_parts = last_part + 1 - a.first_part;
  const bool split = a.most_parts > 1 && tiles * kv_heads < 2 * pool::threads();
  if (split) a.parts = (float*)pool::shared_scratch(0, b.rows * heads * a.most_parts * (a.padded + 2) * sizeof(float));
  const int64_t pieces = split ? a.most_parts : 1;
  Span* spans = (Span*)pool::shared_scratch(1, tiles * kv_heads * pieces * sizeof(Span));
  int64_t count = 0;
  for (int64_t s = b.seqs - 1; s >= 0; --s)
    for (int64_t last = b.row_start[s + 1]; last > b.row_start[s]; last -= rows) {  // the longest first, for balance
      int64_t first = last - rows > b.row_start[s] ? last - rows : b.row_start[s];
      for (int64_t h = 0; h < kv_heads; ++h)
        for (int64_t p = 0; p < pieces; ++p) spans[count++] = {s, first, last - first, h, a.first_part + p, split ? a.first_part + p + 1 : last_part + 1};
    }
#ifdef FT_DOT
  constexpr auto form = attend<true>;
#else
  const auto form = b.kv_bf16 && bf16_activations ? attend<true> : attend<false>;
#endif
  parallel(count, keys * heads * a.padded <= kSmallWork, [&](int64_t i, int thread) { form(a, spans[i], thread); });
  if (!split) return;
  parallel(b.rows * heads, b.rows * heads * a.most_parts * a.padded <= kSmallWork, [&](int64_t i, int) {
    const int64_t position = b.positions[i / heads], from = first_key(position, window) / kPart;
    float* part = a.parts + (i * a.most_parts + from - a.first_part) * (a.padded + 2);
    float m = part[0], l = part[1], *acc = part + 2;
    for (int64_t p = from + 1; p <= position / kPart; ++p) {
      float* next = part + (p - from) * (a.padded + 2);
      merge(m, l, acc, next[0], next[1], next + 2, a.padded);
    }
    finish(a, i / heads, i % heads, m, l, acc);
  });
}
