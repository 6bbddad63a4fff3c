// A persistent pool for loops of independent tasks. One loop runs at a time; the caller works too.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ft::pool {

using Task = void (*)(void* context, int64_t index, int thread);

// Calls task(context, i, thread) for every i in [0, count) and returns when all are done. Not reentrant.
void run(int64_t count, Task task, void* context);

void set_threads(int count);
int threads();

// Memory that lives until the pool grows it: per thread, or shared by the tasks of one operation (numbered slots).
void* thread_scratch(int thread, size_t bytes);
void* shared_scratch(int slot, size_t bytes);

constexpr int kMaxThreads = 256;
constexpr int kSharedSlots = 8;
constexpr int kParts = 7;  // the slot for outputs of routed experts, which outlives the other slots of one operation

}  // namespace ft::pool
