#include <cmath>
#include <cstring>

#include "kernels.h"
#include "pool.h"

namespace ft {
namespace {

uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bf16(uint16_t value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

// Nearest even, subnormals kept, overflow to infinity: what the F16C instruction does.
uint16_t to_fp16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    float scaled;
    std::memcpy(&scaled, &magnitude, 4);
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyintf(scaled * 16777216.0f)));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

float from_fp16(uint16_t value) {
  int exponent = (value >> 10) & 31;
  float fraction = static_cast<float>(value & 1023);
  float magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                    : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                     : std::ldexp(fraction + 1024.0f, exponent - 25);
  return (value & 0x8000) ? -magnitude : magnitude;
}

int64_t block_bytes(int format) { return format == kF32 ? 2048 : format == kBF16 ? 1024 : 544; }

// One row's 32 values of a block of 16 rows.
void put(uint8_t* block, int row, const float* values, int format) {
  if (format == kF32) {
    for (int i = 0; i < 32; ++i) std::memcpy(block + 4 * (16 * i + row), values + i, 4);
  } else if (format == kBF16) {
    for (int i = 0; i < 32; ++i) {
      uint16_t bits = to_bf16(values[i]);
      std::memcpy(block + 2 * (32 * (i / 2) + 2 * row + i % 2), &bits, 2);
    }
  } else {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(values[i]));
    float d = largest / 127.0f, inverse = d == 0 ? 0.0f : 1.0f / d;
    uint16_t bits = to_fp16(d);
    std::memcpy(block + 2 * row, &bits, 2);
    for (int i = 0; i < 32; ++i)
      block[32 + 64 * (i / 4) + 4 * row + i % 4] = static_cast<uint8_t>(static_cast<int8_t>(std::roundf(values[i] * inverse)));
  }
}

void get(const uint8_t* block, int row, float* values, int format) {
  if (format == kF32) {
    for (int i = 0; i < 32; ++i) std::memcpy(values + i, block + 4 * (16 * i + row), 4);
  } else if (format == kBF16) {
    for (int i = 0; i < 32; ++i) {
      uint16_t bits;
      std::memcpy(&bits, block + 2 * (32 * (i / 2) + 2 * row + i % 2), 2);
      values[i] = from_bf16(bits);
    }
  } else {
    uint16_t bits;
    std::memcpy(&bits, block + 2 * row, 2);
    float d = from_fp16(bits);
    for (int i = 0; i < 32; ++i) values[i] = d * static_cast<float>(static_cast<int8_t>(block[32 + 64 * (i / 4) + 4 * row + i % 4]));
  }
}

void get_row(const uint8_t* packed, int64_t row, int64_t k, int format, float* out) {
  int64_t blocks = (k + 31) / 32;
  const uint8_t* group = packed + row / 16 * blocks * block_bytes(format);
  for (int64_t b = 0; b < blocks; ++b) {
    float values[32];
    get(group + b * block_bytes(format), static_cast<int>(row % 16), values, format);
    int64_t count = k - 32 * b < 32 ? k - 32 * b : 32;
    std::memcpy(out + 32 * b, values, count * sizeof(float));
  }
}

}  // namespace

int64_t packed_bytes(int64_t n, int64_t k, int format) { return (n + 15) / 16 * ((k + 31) / 32) * block_bytes(format); }

void pack(const float* w, int64_t n, int64_t k, int format, uint8_t* out) {
  struct Job {
    const float* w;
    int64_t n, k;
    int format;
    uint8_t* out;
  } job{w, n, k, format, out};
  pool::run((n + 15) / 16, [](void* context, int64_t group, int) {
    const Job& j = *static_cast<Job*>(context);
    int64_t blocks = (j.k + 31) / 32;
    for (int64_t b = 0; b < blocks; ++b)
      for (int row = 0; row < 16; ++row) {
        float values[32] = {};
        int64_t r = 16 * group + row;
        for (int64_t i = 0; r < j.n && i < 32 && 32 * b + i < j.k; ++i) values[i] = j.w[r * j.k + 32 * b + i];
        put(j.out + (group * blocks + b) * block_bytes(j.format), row, values, j.format);
      }
  }, &job);
}

void unpack(const uint8_t* packed, int64_t n, int64_t k, int format, float* out) {
  for (int64_t row = 0; row < n; ++row) get_row(packed, row, k, format, out + row * k);
}

void embedding(const int32_t* ids, int64_t rows, const uint8_t* packed, int64_t k, int format, float* out) {
  for (int64_t r = 0; r < rows; ++r) get_row(packed, ids[r], k, format, out + r * k);
}

}  // namespace ft
