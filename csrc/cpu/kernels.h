// What one instruction set provides. Every pointer is to contiguous memory whose size the caller has checked.
#pragma once
#include <cstdint>

namespace ft {

enum Format : int { kF32 = 0, kBF16 = 1, kQ8_0 = 2, kQ4_0 = 3, kMXFP4 = 4, kNVFP4 = 5, kFP8 = 6 };

// A group of 16 rows: a header, then blocks of 16 rows x `inputs`; each `scaled` inputs share a scale (0: there are none).
struct Layout {
  int inputs, bytes, header, scaled;
};
constexpr Layout kLayouts[] = {{32, 2048, 0, 0},  {32, 1024, 0, 0},  {32, 544, 0, 32},   {32, 288, 0, 32},
                               {32, 272, 0, 32}, {32, 288, 64, 16}, {128, 2112, 0, 128}};

// The rows of one step (engine/kernels/contract.py, Batch).
struct Batch {
  uint8_t* arena;
  int64_t arena_bytes;
  const int32_t* row_start;
  const int32_t* positions;
  const int64_t* page_offsets;
  int64_t seqs, rows, pages, page_tokens;
  int kv_bf16;
  const int64_t* states;
  int64_t linear_layers;
  const int32_t* snapshot_seq;
  const int32_t* snapshot_rows;
  const int64_t* snapshot_states;
  int64_t snapshots;
};

enum Activation : int { kSilu = 0, kSwigluOai = 1 };

struct Experts {
  const float* x;            // [rows, hidden]
  const int32_t* ids;        // [rows, top_k]
  const int64_t* addresses;  // [experts]; 0: not ours
  int64_t rows, top_k, experts, hidden, width;
  int format;
  int64_t down_offset, bias_offset;  // bias_offset 0: no biases
  int activation;
};

// Whether inputs of products with matrices, keys and values that are not f32 are rounded to bf16.
extern bool bf16_activations;

// Products with packed weights, and with keys and values.
struct Products {
  void (*linear)(const float* x, int64_t rows, const uint8_t* w, int format, int64_t n, int64_t k, const float* bias, float* out);
  void (*experts)(const Experts& e, float* parts);  // parts [rows, top_k, hidden]
  void (*attention)(const Batch& b, int64_t layer, const float* q, int64_t heads, int64_t kv_heads, int64_t dim, float scale,
                    int64_t window, const float* sinks, float* out);
  float (*peak_loop)(int64_t count);                // `count` multiply-adds of a vector on every thread
};

// The heads of a projection [rows, columns]: queries first, keys from `key_column` on, then values. Norms and rotary tables.
struct Heads {
  const float* x;
  int64_t columns, key_column, heads, kv_heads, dim;
  const float *cos, *sin;  // [positions, half]
  int64_t half;
  const float *q_norm, *k_norm;  // [dim] or nullptr
  float q_eps, k_eps;
};

struct Kernels {
  const char* name;
  Products products;
  void (*rmsnorm)(const float* x, int64_t rows, int64_t dim, const float* w, float eps, const float* gate, float* out);
  void (*add_rmsnorm)(float* residual, const float* delta, int64_t rows, int64_t dim, const float* w, float eps, float* out);
  void (*silu_mul)(const float* gate_up, int64_t rows, int64_t width, float* out);
  void (*sigmoid_mul)(const float* x, const float* gate, int64_t rows, int64_t dim, int64_t gate_dim, bool onto, float* out);
  void (*place_heads)(const Batch& b, int64_t layer, const Heads& heads, float* q);
  void (*conv)(const Batch& b, int64_t layer, const float* x, int64_t channels, const float* w, int64_t width, int64_t state_offset, float* out);
  void (*delta_gates)(const float* ba, int64_t rows, int64_t heads, const float* decay, const float* dt_bias, float* g, float* beta);
  void (*delta_rule)(const Batch& b, int64_t layer, const float* q, const float* k, const float* v, const float* g, const float* beta,
                     int64_t k_heads, int64_t k_dim, int64_t v_heads, int64_t v_dim, float* out);
  void (*route)(const float* logits, int64_t rows, int64_t experts, int64_t top_k, bool renormalise, int32_t* ids, float* weights);
  void (*combine)(const float* parts, const float* weights, int64_t rows, int64_t top_k, int64_t hidden, float* out);
  uint64_t (*read_loop)(const uint8_t* data, int64_t bytes);  // reads every whole 256 KiB once, shared by all threads
};

const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
const Products& dot_products();  // bf16 activations with matrices, keys and values that are not f32, on AVX-512 with BF16

// Layout work that needs no vector code.
int64_t packed_bytes(int64_t n, int64_t k, int format);
void pack(const float* w, int64_t n, int64_t k, int format, uint8_t* out);
void unpack(const uint8_t* packed, int64_t n, int64_t k, int format, float* out);
void embedding(const int32_t* ids, int64_t rows, const uint8_t* packed, int64_t k, int format, float* out);

bool has_avx2();
bool has_avx512();
bool has_bf16();  // AVX-512 with BF16 and VBMI

}  // namespace ft
