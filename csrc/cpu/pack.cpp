#include <algorithm>
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

// Magnitudes of E2M1 and of E4M3 without its NaN, by code.
struct Small {
  float values[127];
  int count;

  // The nearest code, ties to the even one, saturating.
  int code(float magnitude) const {
    const float* end = values + count;
    const float* above = std::lower_bound(values, end, magnitude);
    if (above == end) return count - 1;
    int upper = static_cast<int>(above - values);
    if (upper == 0 || *above == magnitude) return upper;
    float middle = (values[upper - 1] + values[upper]) / 2;
    return magnitude > middle || (magnitude == middle && upper % 2 == 0) ? upper : upper - 1;
  }
};

Small make_e2m1() { return {{0, 0.5f, 1, 1.5f, 2, 3, 4, 6}, 8}; }
Small make_e4m3() {
  Small s{{}, 127};
  for (int c = 0; c < 127; ++c) s.values[c] = c < 8 ? std::ldexp(float(c), -9) : std::ldexp(float(8 + c % 8), c / 8 - 10);
  return s;
}
const Small kE2M1 = make_e2m1(), kE4M3 = make_e4m3();

uint8_t to_e2m1(float v) { return static_cast<uint8_t>(kE2M1.code(std::fabs(v)) | (std::signbit(v) ? 8 : 0)); }
uint8_t to_e4m3(float v) { return static_cast<uint8_t>(kE4M3.code(std::fabs(v)) | (std::signbit(v) ? 128 : 0)); }
float from_e2m1(int code) { return code & 8 ? -kE2M1.values[code & 7] : kE2M1.values[code & 7]; }
float from_e4m3(int code) {
  float magnitude = (code & 127) == 127 ? NAN : kE4M3.values[code & 127];
  return code & 128 ? -magnitude : magnitude;
}
float ratio(float value, float scale) { return scale == 0 ? 0.0f : value / scale; }

template <class T>
T read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void write(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Where one row's input i lies in a block of codes: the byte, and for 4-bit codes the bits to shift by.
int byte4(int row, int i) { return 64 * (i / 8) + 4 * row + 2 * (i % 2) + i % 8 / 4; }
int shift4(int i) { return i % 4 / 2 * 4; }
int byte8(int row, int i) { return 64 * (i / 4) + 4 * row + i % 4; }
int code4(const uint8_t* block, int row, int i) { return block[byte4(row, i)] >> shift4(i) & 15; }
void set_code4(uint8_t* block, int row, int i, int code) {
  uint8_t& byte = block[byte4(row, i)];
  byte = static_cast<uint8_t>((byte & (0xf0 >> shift4(i))) | (code << shift4(i)));
}

float largest_magnitude(const float* values, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::fmax(largest, std::fabs(values[i]));
  return largest;
}

// One row's values of a block of 16 rows, rounded as engine/quant says. `row_scale` is nvfp4's.
void put(uint8_t* block, int row, const float* values, int format, float row_scale) {
  switch (format) {
    case kF32:
      for (int i = 0; i < 32; ++i) write(block + 4 * (16 * i + row), values[i]);
      break;
    case kBF16:
      for (int i = 0; i < 32; ++i) write(block + 2 * (32 * (i / 2) + 2 * row + i % 2), to_bf16(values[i]));
      break;
    case kQ8_0: {
      float d = largest_magnitude(values, 32) / 127.0f, inverse = d == 0 ? 0.0f : 1.0f / d;
      write(block + 2 * row, to_fp16(d));
      for (int i = 0; i < 32; ++i)
        block[32 + byte8(row, i)] = static_cast<uint8_t>(static_cast<int8_t>(std::roundf(values[i] * inverse)));
      break;
    }
    case kQ4_0: {
      float extreme = values[0];
      for (int i = 1; i < 32; ++i) extreme = std::fabs(values[i]) > std::fabs(extreme) ? values[i] : extreme;
      float d = extreme / -8.0f, inverse = d == 0 ? 0.0f : 1.0f / d;
      write(block + 256 + 2 * row, to_fp16(d));
      for (int i = 0; i < 32; ++i) {
        float code = std::trunc(values[i] * inverse + 8.5f);
        set_code4(block, row, i, static_cast<int>(std::fmin(std::fmax(code, 0.0f), 15.0f)));
      }
      break;
    }
    case kMXFP4: {
      float largest = largest_magnitude(values, 32);
      int exponent = largest == 0 ? -127 : std::ilogb(largest) - 2;
      exponent = std::min(std::max(exponent, -127), 127);
      block[256 + row] = static_cast<uint8_t>(exponent + 127);
      for (int i = 0; i < 32; ++i) set_code4(block, row, i, to_e2m1(std::ldexp(values[i], -exponent)));
      break;
    }
    case kNVFP4:
      for (int half = 0; half < 2; ++half) {
        uint8_t code = to_e4m3(ratio(largest_magnitude(values + 16 * half, 16) / 6.0f, row_scale));
        block[256 + 16 * half + row] = code;
        float scale = row_scale * from_e4m3(code);
        for (int i = 16 * half; i < 16 * half + 16; ++i) set_code4(block, row, i, to_e2m1(ratio(values[i], scale)));
      }
      break;
    case kFP8: {
      float scale = largest_magnitude(values, 128) / 448.0f;
      write(block + 4 * row, scale);
      for (int i = 0; i < 128; ++i) block[64 + byte8(row, i)] = to_e4m3(ratio(values[i], scale));
      break;
    }
  }
}

void get(const uint8_t* block, int row, float* values, int format, float row_scale) {
  switch (format) {
    case kF32:
      for (int i = 0; i < 32; ++i) values[i] = read<float>(block + 4 * (16 * i + row));
      break;
    case kBF16:
      for (int i = 0; i < 32; ++i) values[i] = from_bf16(read<uint16_t>(block + 2 * (32 * (i / 2) + 2 * row + i % 2)));
      break;
    case kQ8_0: {
      float d = from_fp16(read<uint16_t>(block + 2 * row));
      for (int i = 0; i < 32; ++i) values[i] = d * static_cast<float>(static_cast<int8_t>(block[32 + byte8(row, i)]));
      break;
    }
    case kQ4_0: {
      float d = from_fp16(read<uint16_t>(block + 256 + 2 * row));
      for (int i = 0; i < 32; ++i) values[i] = d * static_cast<float>(code4(block, row, i) - 8);
      break;
    }
    case kMXFP4: {
      float d = std::ldexp(1.0f, block[256 + row] - 127);
      for (int i = 0; i < 32; ++i) values[i] = d * from_e2m1(code4(block, row, i));
      break;
    }
    case kNVFP4:
      for (int i = 0; i < 32; ++i)
        values[i] = row_scale * (from_e4m3(block[256 + 16 * (i / 16) + row]) * from_e2m1(code4(block, row, i)));
      break;
    case kFP8: {
      float d = read<float>(block + 4 * row);
      for (int i = 0; i < 128; ++i) values[i] = d * from_e4m3(block[64 + byte8(row, i)]);
      break;
    }
  }
}

int64_t blocks_of(int64_t k, int format) { return (k + kLayouts[format].inputs - 1) / kLayouts[format].inputs; }
int64_t group_bytes(int64_t k, int format) { return kLayouts[format].header + blocks_of(k, format) * kLayouts[format].bytes; }

void get_row(const uint8_t* packed, int64_t row, int64_t k, int format, float* out) {
  const Layout l = kLayouts[format];
  const uint8_t* group = packed + row / 16 * group_bytes(k, format);
  const int in_group = static_cast<int>(row % 16);
  const float row_scale = l.header == 0 ? 1.0f : read<float>(group + 4 * in_group);
  for (int64_t b = 0; b < blocks_of(k, format); ++b) {
    float values[128];
    get(group + l.header + b * l.bytes, in_group, values, format, row_scale);
    std::memcpy(out + l.inputs * b, values, std::min<int64_t>(k - l.inputs * b, l.inputs) * sizeof(float));
  }
}

template <class F>
void each(int64_t count, const F& f) {
  pool::run(count, [](void* context, int64_t i, int) { (*static_cast<const F*>(context))(i); }, const_cast<F*>(&f));
}

}  // namespace

int64_t packed_bytes(int64_t n, int64_t k, int format) { return (n + 15) / 16 * group_bytes(k, format); }

void pack(const float* w, int64_t n, int64_t k, int format, uint8_t* out) {
  const Layout l = kLayouts[format];
  each((n + 15) / 16, [=](int64_t g) {
    uint8_t* group = out + g * group_bytes(k, format);
    for (int row = 0; row < 16; ++row) {
      const int64_t r = 16 * g + row;
      float row_scale = 1.0f;
      if (l.header != 0) {
        float largest = 0;
        for (int64_t i = 0; r < n && i < k; ++i) largest = std::fmax(largest, std::fabs(w[r * k + i]));
        row_scale = largest / (6.0f * 448.0f);
        write(group + 4 * row, row_scale);
      }
      for (int64_t b = 0; b < blocks_of(k, format); ++b) {
        float values[128] = {};
        for (int64_t i = 0; r < n && i < l.inputs && l.inputs * b + i < k; ++i) values[i] = w[r * k + l.inputs * b + i];
        put(group + l.header + b * l.bytes, row, values, format, row_scale);
      }
    }
  });
}

void unpack(const uint8_t* packed, int64_t n, int64_t k, int format, float* out) {
  each((n + 15) / 16, [=](int64_t g) {
    for (int64_t row = 16 * g; row < n && row < 16 * g + 16; ++row) get_row(packed, row, k, format, out + row * k);
  });
}

void embedding(const int32_t* ids, int64_t rows, const uint8_t* packed, int64_t k, int format, float* out) {
  each(rows, [=](int64_t r) { get_row(packed, ids[r], k, format, out + r * k); });
}

}  // namespace ft
