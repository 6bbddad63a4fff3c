// The Python module. Arrays arrive as addresses, because converting a tensor costs more than most of these calls take in
// decode; engine/kernels/cpu.py has checked their types, sizes and contiguity. What depends on array contents (indices,
// offsets) is checked here, so that no wrong index reads or writes outside its array.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "curve.h"
#include "kernels.h"
#include "pool.h"

namespace nb = nanobind;

namespace ft {

bool bf16_activations = false;

namespace {

using Address = uintptr_t;
const Kernels* kernels = nullptr;
std::mutex one_at_a_time;  // operations share the pool and its scratch memory

template <class T>
T* at(Address a) {
  return reinterpret_cast<T*>(a);
}

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

bool dot = false;  // avx512bf16

void set_isa(const std::string& name) {
  if (name == "avx512bf16" && has_bf16()) {
    kernels = &kernels_avx512();
  } else if (name == "avx512" && has_avx512()) {
    kernels = &kernels_avx512();
  } else if (name == "avx2" && has_avx2()) {
    kernels = &kernels_avx2();
  } else {
    throw std::invalid_argument("instruction set '" + name + "' is unknown or not supported by this processor");
  }
  dot = name == "avx512bf16";
}

void choose_isa() {
  const char* wanted = std::getenv("FT_ISA");
  if (wanted != nullptr && *wanted != 0) {
    set_isa(wanted);
  } else if (has_bf16()) {
    set_isa("avx512bf16");
  } else if (has_avx512()) {
    set_isa("avx512");
  } else if (has_avx2()) {
    set_isa("avx2");
  } else {
    throw std::runtime_error("this processor lacks AVX2, FMA or F16C, which the CPU kernels need");
  }
}

const Products& products(int format) { return dot && bf16_activations && format != kF32 ? dot_products() : kernels->products; }

Batch make_batch(Address arena, int64_t arena_bytes, Address row_start, Address positions, Address page_offsets, int64_t seqs,
                 int64_t rows, int64_t pages, int64_t page_tokens, bool kv_bf16, Address states, int64_t linear_layers,
                 Address snapshot_seq, Address snapshot_rows, Address snapshot_states, int64_t snapshots) {
  return Batch{at<uint8_t>(arena), arena_bytes, at<int32_t>(row_start), at<int32_t>(positions), at<int64_t>(page_offsets), seqs,
               rows, pages, page_tokens, kv_bf16, at<int64_t>(states), linear_layers, at<int32_t>(snapshot_seq),
               at<int32_t>(snapshot_rows), at<int64_t>(snapshot_states), snapshots};
}

void check_rows(const Batch& b) {
  require(b.row_start[0] == 0 && b.row_start[b.seqs] == b.rows, "row_start must run from 0 to the number of rows");
  for (int64_t s = 0; s < b.seqs; ++s) require(b.row_start[s] <= b.row_start[s + 1], "row_start must not fall");
}

// Every page that this step touches lies inside the arena: those of its rows, and of all keys they see where `reads`.
void check_pages(const Batch& b, int64_t layer, int64_t kv_heads, int64_t dim, bool reads, int64_t window) {
  check_rows(b);
  require(layer >= 0, "layer must not be negative");
  const int64_t bytes = (layer + 1) * 2 * kv_heads * b.page_tokens * dim * (b.kv_bf16 ? 2 : 4);
  for (int64_t s = 0; s < b.seqs; ++s) {
    int64_t first = INT64_MAX, last = -1;
    for (int64_t r = b.row_start[s]; r < b.row_start[s + 1]; ++r) {
      require(b.positions[r] >= 0, "positions must not be negative");
      if (b.positions[r] > last) last = b.positions[r];
      if (b.positions[r] < first) first = b.positions[r];
    }
    if (last < 0) continue;
    require(last / b.page_tokens < b.pages, "a position lies past the sequence's pages");
    if (reads) first = window == 0 || first < window ? 0 : first + 1 - window;
    for (int64_t p = first / b.page_tokens; p <= last / b.page_tokens; ++p) {
      int64_t offset = b.page_offsets[s * b.pages + p];
      require(offset >= 0 && offset % 4 == 0 && offset + bytes <= b.arena_bytes, "a page lies outside the arena");
    }
  }
}

void check_states(const Batch& b, int64_t layer, int64_t offset, int64_t bytes) {
  check_rows(b);
  require(layer >= 0 && layer < b.linear_layers, "layer is not a linear layer of this batch");
  require(offset >= 0 && offset % 4 == 0, "state_offset must be a non-negative multiple of 4");
  auto inside = [&](int64_t start) { return start >= 0 && start % 4 == 0 && start + offset + bytes <= b.arena_bytes; };
  for (int64_t s = 0; s < b.seqs; ++s) require(inside(b.states[s * b.linear_layers + layer]), "a state lies outside the arena");
  for (int64_t i = 0; i < b.snapshots; ++i) {
    int32_t s = b.snapshot_seq[i];
    require(s >= 0 && s < b.seqs, "a snapshot names no sequence of this batch");
    require(b.snapshot_rows[i] >= 0 && b.snapshot_rows[i] <= b.row_start[s + 1] - b.row_start[s],
            "a snapshot lies past its sequence's rows");
    require(inside(b.snapshot_states[i * b.linear_layers + layer]), "a snapshot lies outside the arena");
  }
}

void linear(Address x, int64_t rows, Address w, int format, int64_t n, int64_t k, Address bias, Address out) {
  std::lock_guard lock(one_at_a_time);
  products(format).linear(at<float>(x), rows, at<uint8_t>(w), format, n, k, at<float>(bias), at<float>(out));
}

void rmsnorm(Address x, int64_t rows, int64_t dim, Address w, float eps, Address gate, Address out) {
  std::lock_guard lock(one_at_a_time);
  kernels->rmsnorm(at<float>(x), rows, dim, at<float>(w), eps, at<float>(gate), at<float>(out));
}

void add_rmsnorm(Address residual, Address delta, int64_t rows, int64_t dim, Address w, float eps, Address out) {
  std::lock_guard lock(one_at_a_time);
  kernels->add_rmsnorm(at<float>(residual), at<float>(delta), rows, dim, at<float>(w), eps, at<float>(out));
}

void silu_mul(Address gate_up, int64_t rows, int64_t width, Address out) {
  std::lock_guard lock(one_at_a_time);
  kernels->silu_mul(at<float>(gate_up), rows, width, at<float>(out));
}

void sigmoid_mul(Address x, Address gate, int64_t rows, int64_t dim, int64_t gate_dim, bool onto, Address out) {
  std::lock_guard lock(one_at_a_time);
  kernels->sigmoid_mul(at<float>(x), at<float>(gate), rows, dim, gate_dim, onto, at<float>(out));
}

void place_heads(const Batch& b, int64_t layer, Address x, int64_t columns, int64_t key_column, int64_t heads, int64_t kv_heads,
                 int64_t dim, Address cos, Address sin, int64_t table_rows, int64_t half, Address q_norm, float q_eps,
                 Address k_norm, float k_eps, Address q) {
  check_pages(b, layer, kv_heads, dim, false, 0);
  for (int64_t r = 0; r < b.rows; ++r) require(b.positions[r] < table_rows, "a position lies past the rotary table");
  std::lock_guard lock(one_at_a_time);
  const Heads parts{at<float>(x), columns, key_column, heads, kv_heads, dim, at<float>(cos), at<float>(sin), half,
                    at<float>(q_norm), at<float>(k_norm), q_eps, k_eps};
  kernels->place_heads(b, layer, parts, at<float>(q));
}

void attention(const Batch& b, int64_t layer, Address q, int64_t heads, int64_t kv_heads, int64_t dim, float scale,
               int64_t window, Address sinks, Address out) {
  check_pages(b, layer, kv_heads, dim, true, window);
  std::lock_guard lock(one_at_a_time);
  products(b.kv_bf16 ? kBF16 : kF32).attention(b, layer, at<float>(q), heads, kv_heads, dim, scale, window, at<float>(sinks), at<float>(out));
}

void conv(const Batch& b, int64_t layer, Address x, int64_t channels, Address w, int64_t width, int64_t state_offset, Address out) {
  require(width >= 1 && width <= 8, "convolution width must be 1 to 8");
  check_states(b, layer, state_offset, (width - 1) * channels * 4);
  std::lock_guard lock(one_at_a_time);
  kernels->conv(b, layer, at<float>(x), channels, at<float>(w), width, state_offset, at<float>(out));
}

void delta_gates(Address ba, int64_t rows, int64_t heads, Address decay, Address dt_bias, Address g, Address beta) {
  std::lock_guard lock(one_at_a_time);
  kernels->delta_gates(at<float>(ba), rows, heads, at<float>(decay), at<float>(dt_bias), at<float>(g), at<float>(beta));
}

void delta_rule(const Batch& b, int64_t layer, Address q, Address k, Address v, Address g, Address beta, int64_t k_heads,
                int64_t k_dim, int64_t v_heads, int64_t v_dim, Address out) {
  check_states(b, layer, 0, v_heads * k_dim * v_dim * 4);
  std::lock_guard lock(one_at_a_time);
  kernels->delta_rule(b, layer, at<float>(q), at<float>(k), at<float>(v), at<float>(g), at<float>(beta), k_heads, k_dim, v_heads,
                      v_dim, at<float>(out));
}

void route(Address logits, int64_t rows, int64_t experts, int64_t top_k, bool renormalise, Address ids, Address weights) {
  std::lock_guard lock(one_at_a_time);
  kernels->route(at<float>(logits), rows, experts, top_k, renormalise, at<int32_t>(ids), at<float>(weights));
}

Experts routed(Address x, Address ids, Address addresses, int64_t rows, int64_t top_k, int64_t experts, int64_t hidden,
               int64_t width, int format, int64_t down_offset, int64_t bias_offset, int activation) {
  for (int64_t i = 0; i < rows * top_k; ++i)
    require(at<int32_t>(ids)[i] >= 0 && at<int32_t>(ids)[i] < experts, "an expert id lies outside the address table");
  return {at<float>(x), at<int32_t>(ids), at<int64_t>(addresses), rows, top_k, experts, hidden, width,
          format, down_offset, bias_offset, activation};
}

void routed_experts(Address x, Address ids, Address addresses, int64_t rows, int64_t top_k, int64_t experts, int64_t hidden,
                    int64_t width, int format, int64_t down_offset, int64_t bias_offset, int activation, Address weights,
                    Address out) {
  const Experts e =
      routed(x, ids, addresses, rows, top_k, experts, hidden, width, format, down_offset, bias_offset, activation);
  for (int64_t i = 0; i < rows * top_k; ++i) require(e.addresses[e.ids[i]] != 0, "a routed expert has no address");
  std::lock_guard lock(one_at_a_time);
  float* parts = static_cast<float*>(pool::shared_scratch(pool::kParts, rows * top_k * hidden * sizeof(float)));
  products(format).experts(e, parts);
  kernels->combine(parts, at<float>(weights), rows, top_k, hidden, at<float>(out));
}

void expert_outputs(Address x, Address ids, Address addresses, int64_t rows, int64_t top_k, int64_t experts, int64_t hidden,
                    int64_t width, int format, int64_t down_offset, int64_t bias_offset, int activation, Address parts) {
  const Experts e =
      routed(x, ids, addresses, rows, top_k, experts, hidden, width, format, down_offset, bias_offset, activation);
  std::lock_guard lock(one_at_a_time);
  products(format).experts(e, at<float>(parts));
}

void combine(Address parts, Address weights, int64_t rows, int64_t top_k, int64_t hidden, Address out) {
  std::lock_guard lock(one_at_a_time);
  kernels->combine(at<float>(parts), at<float>(weights), rows, top_k, hidden, at<float>(out));
}

void pack_weight(Address w, int64_t n, int64_t k, int format, Address out) {
  std::lock_guard lock(one_at_a_time);
  pack(at<float>(w), n, k, format, at<uint8_t>(out));
}

void unpack_weight(Address packed, int64_t n, int64_t k, int format, Address out) {
  std::lock_guard lock(one_at_a_time);
  unpack(at<uint8_t>(packed), n, k, format, at<float>(out));
}

void embed(Address ids, int64_t rows, Address packed, int64_t n, int64_t k, int format, Address out) {
  for (int64_t r = 0; r < rows; ++r)
    require(at<int32_t>(ids)[r] >= 0 && at<int32_t>(ids)[r] < n, "a token id lies outside the vocabulary");
  std::lock_guard lock(one_at_a_time);
  embedding(at<int32_t>(ids), rows, at<uint8_t>(packed), k, format, at<float>(out));
}

void set_threads(int count) {
  require(count >= 1 && count <= pool::kMaxThreads, "threads must be 1 to 256");
  std::lock_guard lock(one_at_a_time);
  pool::set_threads(count);
}

// Loops of `count` vector operations on every thread: multiply-adds of fp32, or products of bf16 pairs.
float fma_loop(int64_t count) {
  std::lock_guard lock(one_at_a_time);
  return kernels->products.peak_loop(count);
}

float dot_loop(int64_t count) {
  require(has_bf16(), "this processor has no bf16 products");
  std::lock_guard lock(one_at_a_time);
  return dot_products().peak_loop(count);
}

// `routed` [rows, top_k] is any contiguous array of signed integers: this is called for every layer of every token.
void note_routing(Curve& curve, int64_t layer, nb::handle routed) {
  Py_buffer view;
  if (PyObject_GetBuffer(routed.ptr(), &view, PyBUF_ND | PyBUF_FORMAT) != 0) throw nb::python_error();
  std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> release(&view, &PyBuffer_Release);
  require(view.ndim == 2 && view.format != nullptr && std::strchr("hilq", view.format[0]) != nullptr && view.format[1] == 0,
          "routing is an array of integers with two dimensions");
  if (view.itemsize == 2) {
    curve.note(layer, (const int16_t*)view.buf, view.shape[0], view.shape[1]);
  } else if (view.itemsize == 4) {
    curve.note(layer, (const int32_t*)view.buf, view.shape[0], view.shape[1]);
  } else {
    curve.note(layer, (const int64_t*)view.buf, view.shape[0], view.shape[1]);
  }
}

uint64_t read_loop(Address data, int64_t bytes) {
  std::lock_guard lock(one_at_a_time);
  return kernels->read_loop(at<uint8_t>(data), bytes);
}

}  // namespace
}  // namespace ft

NB_MODULE(_cpu, m) {
  nb::set_leak_warnings(false);  // a process that ends while it holds a curve or a batch has nothing to tell its user
  using namespace ft;
  using NoGil = nb::call_guard<nb::gil_scoped_release>;
  choose_isa();
  nb::class_<Batch>(m, "Batch");
  m.def("batch", &make_batch);
  m.def("isa", [] { return std::string(dot ? "avx512bf16" : kernels->name); });
  m.def("set_isa", &set_isa);
  m.def("set_threads", &set_threads, NoGil());
  m.def("thread_count", [] { return pool::threads(); });
  m.def("pack", &pack_weight, NoGil());
  m.def("unpack", &unpack_weight, NoGil());
  m.def("embedding", &embed, NoGil());
  m.def("linear", &linear, NoGil());
  m.def("rmsnorm", &rmsnorm, NoGil());
  m.def("add_rmsnorm", &add_rmsnorm, NoGil());
  m.def("silu_mul", &silu_mul, NoGil());
  m.def("sigmoid_mul", &sigmoid_mul, NoGil());
  m.def("place_heads", &place_heads, NoGil());
  m.def("attention", &attention, NoGil());
  m.def("conv", &conv, NoGil());
  m.def("delta_gates", &delta_gates, NoGil());
  m.def("delta_rule", &delta_rule, NoGil());
  m.def("route", &route, NoGil());
  m.def("experts", &routed_experts, NoGil());
  m.def("expert_outputs", &expert_outputs, NoGil());
  m.def("combine", &combine, NoGil());
  m.def("set_activations", [](bool bf16) { bf16_activations = bf16; });
  m.def("activations", [] { return bf16_activations; });
  m.def("has_bf16", &has_bf16);
  m.def("fma_loop", &fma_loop, NoGil());
  m.def("dot_loop", &dot_loop, NoGil());
  m.def("read_loop", &read_loop, NoGil());
  nb::class_<Curve>(m, "Curve")
      .def(nb::init<int64_t, int64_t, double, double, int64_t>())
      .def("note", &note_routing)
      .def("misses", &Curve::misses)
      .def("asked", &Curve::asked)
      .def("steps", &Curve::steps);
}
