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

#include "linear.h"
#include "norm.h"
#include "moe.h"
#include "attention.h"
#include "recurrent.h"
#include "roofline.h"

const Kernels table = {
    FT_TEXT(FT_ISA), linear, rmsnorm, add_rmsnorm, silu_mul, sigmoid_mul, rope, write_kv,
    attention,       conv,   delta_rule, route,    routed_experts, combine, fma_loop, read_loop,
};

}  // namespace
}  // namespace FT_ISA

const Kernels& FT_JOIN(kernels_, FT_ISA)() { return FT_ISA::table; }

}  // namespace ft
