#include <cpuid.h>

#include "kernels.h"

namespace ft {
namespace {

// Which register files the operating system saves: bits 1, 2 for ymm; 5, 6, 7 as well for zmm.
uint64_t enabled_registers() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low | (static_cast<uint64_t>(high) << 32);
}

}  // namespace

bool has_avx2() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
  bool base = (c & bit_AVX) && (c & bit_FMA) && (c & bit_F16C);
  if (!base || (enabled_registers() & 0x6) != 0x6) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

bool has_avx512() {
  unsigned a, b, c, d;
  constexpr unsigned wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
  return has_avx2() && (enabled_registers() & 0xe6) == 0xe6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & wanted) == wanted;
}

bool has_bf16() {
  unsigned a, b, c, d;
  if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(c & bit_AVX512VBMI)) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVX512BF16);
}

}  // namespace ft
