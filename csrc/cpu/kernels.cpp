// Compiled once per instruction set. Everything lies in an unnamed namespace and nothing of the standard library is used
// here, so that no function built for a newer processor can be picked by the linker for an older one.
#include <immintrin.h>

#include "kernels.h"
#include "pool.h"

#define FT_JOIN2(a, b) a##b
#define FT_JOIN(a, b) FT_JOIN2(a, b)
#define FT_TEXT2(a) #a
#define FT_TEXT(a) FT_TEXT2(a)

namespace ft {
namespace FT_ISA {
namespace {

#include "vec.h"

template <class F>
FT_INLINE void parallel(int64_t count, bool small, const F& f) {
  if (small) {
    for (int64_t i = 0; i < count; ++i) f(i, 0);
    return;
  }
  pool::run(count, [](void* context, int64_t i, int thread) { (*(const F*)context)(i, thread); }, (void*)&f);
}

constexpr int64_t kSmallWork = (int64_t)1 << 14;  // multiply-adds below which waking threads costs more than the work

#include "norm.h"
#include "weights.h"
#include "tile.h"
#include "panel.h"
#include "products.h"
#include "linear.h"
#include "experts.h"
#include "pages.h"
#include "attention.h"
#ifndef FT_DOT
#include "route.h"
#include "recurrent.h"
#endif
#include "roofline.h"

}  // namespace
}  // namespace FT_ISA

#ifdef FT_DOT
const Products& dot_products() {
  static constexpr Products table{FT_ISA::linear, FT_ISA::routed_experts, FT_ISA::attention, FT_ISA::dot_loop};
  return table;
}
#else
const Kernels& FT_JOIN(kernels_, FT_ISA)() {
  using namespace FT_ISA;
  static const Kernels table{
      FT_TEXT(FT_ISA), {linear, routed_experts, attention, fma_loop}, rmsnorm, add_rmsnorm, silu_mul, sigmoid_mul, place_heads,
      conv, delta_gates, delta_rule, route, combine, read_loop,
  };
  return table;
}
#endif

}  // namespace ft
