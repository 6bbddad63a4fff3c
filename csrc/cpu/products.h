// The products of any number of rows with a tile of groups, for every format.

// How many groups a tile of `rows` rows takes.
constexpr int64_t kFew = 4;
FT_INLINE int64_t groups_together(int64_t rows) {
#ifdef __AVX512F__
  return rows <= 2 ? 4 : 2;
#else
  return rows == 1 ? 4 : 1;
#endif
}

using Direct = void (*)(const uint8_t* const*, int64_t, const X* const*, V*, int64_t);
template <int F>
FT_INLINE Direct direct_of(int64_t rows, int64_t groups) {
#ifdef __AVX512F__
  if (groups == 4 && rows == 2) return direct<F, 2, 4>;
#endif
  if (groups == 4) return direct<F, 1, 4>;
  constexpr Direct two[] = {direct<F, 1, 2>, direct<F, 2, 2>, direct<F, 3, 2>, direct<F, 4, 2>};
  constexpr Direct one[] = {direct<F, 1, 1>, direct<F, 2, 1>, direct<F, 3, 1>, direct<F, 4, 1>};
  return groups == 2 ? two[rows - 1] : one[rows - 1];
}

// out[m][g] = the products of `rows` rows with 1, 2 or 4 groups; k is padded. The next tile's groups probably lie `jump` bytes
// after the ends of these.
template <int F>
static void products(const uint8_t* const* groups, int64_t count, int64_t k, const X* const* x, int64_t rows, V* out, int64_t jump) {
  if (rows <= kFew)
    direct_of<F>(rows, count)(groups, k, x, out, jump);
  else if (count == 1)
    panel<F, 1>(groups, k, x, rows, out, jump);
  else
    panel<F, kWide>(groups, k, x, rows, out, jump);
  if constexpr (kLayouts[F].header != 0)
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t g = 0; g < count; ++g) out[m * count + g] = mul(out[m * count + g], row_scale<F>(groups[g]));
}

FT_INLINE void products(int format, const uint8_t* const* groups, int64_t count, int64_t k, const X* const* x, int64_t rows, V* out,
                        int64_t jump) {
  switch (format) {
#ifndef FT_DOT
    case kF32: return products<kF32>(groups, count, k, x, rows, out, jump);
#endif
    case kBF16: return products<kBF16>(groups, count, k, x, rows, out, jump);
    case kQ8_0: return products<kQ8_0>(groups, count, k, x, rows, out, jump);
    case kQ4_0: return products<kQ4_0>(groups, count, k, x, rows, out, jump);
    case kMXFP4: return products<kMXFP4>(groups, count, k, x, rows, out, jump);
    case kNVFP4: return products<kNVFP4>(groups, count, k, x, rows, out, jump);
    case kFP8: return products<kFP8>(groups, count, k, x, rows, out, jump);
  }
}
