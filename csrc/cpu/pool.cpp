#include "pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ft::pool {
namespace {

// The tasks of a job are cut into one range per thread, published as one word each: epoch (22 bits), end (21 bits), next (21
// bits). A thread takes its own range from the front, so that it walks through memory in order, and then what is left of the
// others' from their ends. Every claim is a compare-and-swap of the whole word, so a thread can never take a task of a job
// whose description has already been replaced: the description stays until every claimed task has been counted in `done`.
constexpr int kBits = 21;
constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
constexpr int64_t kLargestJob = int64_t{1} << 20;
constexpr auto kSpin = std::chrono::microseconds(40);

struct alignas(64) Range {
  std::atomic<uint64_t> word{0};
};

struct alignas(64) State {
  std::atomic<uint64_t> jobs{0};
  alignas(64) std::atomic<int64_t> done{0};
  alignas(64) std::atomic<uint32_t> wake{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  Task task = nullptr;
  void* context = nullptr;
  int64_t offset = 0;
};

State state;
Range ranges[kMaxThreads];
std::vector<std::thread> workers;
int thread_count = 0;

// A thread that another program has pushed off its core holds up the job whose task it has claimed, for milliseconds. When
// that happens the caller works alone for a while, longer each time it happens again soon, so that a busy core costs no more
// than its share.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  bool alone() const { return Clock::now() < until_; }

  // Called when a job's last tasks are waited for: processor time of the other threads tells a long task from a lost core.
  void begin() {
    start_ = Clock::now();
    used_ = used();
  }
  void end() {
    const Clock::time_point now = Clock::now();
    const auto waited = now - start_;
    if (waited < kNoticed || used() - used_ > waited / 2) return;
    pause_ = now - until_ > 4 * pause_ ? kShortest : std::min(2 * pause_, kLongest);
    until_ = now + pause_;
  }

 private:
  static constexpr std::chrono::nanoseconds kNoticed{200'000}, kShortest{8'000'000}, kLongest{256'000'000};
  static std::chrono::nanoseconds used();

  Clock::time_point start_{}, until_{};
  std::chrono::nanoseconds used_{}, pause_ = kShortest;
} patience;

std::chrono::nanoseconds Patience::used() {
  std::chrono::nanoseconds total{};
  for (std::thread& w : workers) {
    clockid_t clock;
    timespec t;
    if (pthread_getcpuclockid(w.native_handle(), &clock) == 0 && clock_gettime(clock, &t) == 0)
      total += std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  }
  return total;
}

struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  void* at_least(size_t wanted) {
    if (wanted > bytes) {
      std::free(data);
      bytes = 0;
      size_t size = (wanted + wanted / 2 + 4095) / 4096 * 4096;
      data = std::aligned_alloc(64, size);
      if (data == nullptr) throw std::bad_alloc();
      bytes = size;
    }
    return data;
  }
};
Buffer per_thread[kMaxThreads];
Buffer shared[kSharedSlots];

void futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

// The index of a task from a thread's range, its first or its last; -1 when none is left.
int64_t claim(int owner, bool first) {
  std::atomic<uint64_t>& word = ranges[owner].word;
  uint64_t w = word.load(std::memory_order_acquire);
  while ((w & kMask) < ((w >> kBits) & kMask)) {
    uint64_t taken = first ? w + 1 : w - (uint64_t{1} << kBits);
    if (word.compare_exchange_weak(w, taken, std::memory_order_acq_rel, std::memory_order_acquire))
      return static_cast<int64_t>(first ? w & kMask : ((w >> kBits) & kMask) - 1);
  }
  return -1;
}

void work(int thread, int threads) {
  for (int other = 0; other < threads; ++other) {
    int owner = (thread + other) % threads;
    for (int64_t i; (i = claim(owner, other == 0)) >= 0;) {
      state.task(state.context, state.offset + i, thread);
      state.done.fetch_add(1, std::memory_order_release);
    }
  }
}

void worker(int thread, int threads) {
  uint64_t seen = 0;
  while (!state.stop.load(std::memory_order_acquire)) {
    auto until = std::chrono::steady_clock::now() + kSpin;
    bool found = false;
    while (!found && std::chrono::steady_clock::now() < until) {
      for (int i = 0; i < 16 && !(found = state.jobs.load(std::memory_order_seq_cst) != seen); ++i) _mm_pause();
    }
    if (found) {
      seen = state.jobs.load(std::memory_order_seq_cst);
      work(thread, threads);
      continue;
    }
    uint32_t before = state.wake.load(std::memory_order_seq_cst);
    state.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (state.jobs.load(std::memory_order_seq_cst) == seen && !state.stop.load(std::memory_order_seq_cst))
      futex(&state.wake, FUTEX_WAIT, before);
    state.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void wake_all() {
  state.wake.fetch_add(1, std::memory_order_seq_cst);
  futex(&state.wake, FUTEX_WAKE, INT32_MAX);
}

// Physical cores this process may run on: siblings of one core share its arithmetic units.
int physical_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string line;
    if (!std::getline(siblings, line)) line = std::to_string(cpu);
    cores.insert(line);
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}

struct AtExit {
  ~AtExit() {
    state.stop.store(true);
    wake_all();
    for (auto& w : workers) w.join();
    workers.clear();
  }
} at_exit;

}  // namespace

int threads() {
  if (thread_count == 0) set_threads(physical_cores());
  return thread_count;
}

void set_threads(int count) {
  if (count > kMaxThreads) count = kMaxThreads;
  if (count == thread_count) return;
  state.stop.store(true);
  wake_all();
  for (auto& w : workers) w.join();
  workers.clear();
  state.stop.store(false);
  thread_count = count;
  for (int i = 1; i < count; ++i) workers.emplace_back(worker, i, count);
}

void run(int64_t count, Task task, void* context) {
  if (threads() == 1 || count == 1 || patience.alone()) {
    for (int64_t i = 0; i < count; ++i) task(context, i, 0);
    return;
  }
  for (int64_t offset = 0; offset < count; offset += kLargestJob) {
    const int64_t size = count - offset < kLargestJob ? count - offset : kLargestJob;
    state.task = task;
    state.context = context;
    state.offset = offset;
    state.done.store(0, std::memory_order_relaxed);
    const uint64_t job = state.jobs.load(std::memory_order_relaxed) + 1;
    for (int t = 0; t < thread_count; ++t) {
      uint64_t next = static_cast<uint64_t>(t * size / thread_count), end = static_cast<uint64_t>((t + 1) * size / thread_count);
      ranges[t].word.store((job << (2 * kBits)) | (end << kBits) | next, std::memory_order_release);
    }
    state.jobs.store(job, std::memory_order_seq_cst);
    if (state.sleepers.load(std::memory_order_seq_cst) > 0) wake_all();
    work(0, thread_count);
    constexpr int kSpins = 4000;
    int spins = 0;
    for (; state.done.load(std::memory_order_acquire) < size; ++spins) {
      if (spins == kSpins) patience.begin();
      if (spins < kSpins)
        _mm_pause();
      else
        sched_yield();
    }
    if (spins > kSpins) patience.end();
  }
}

void* thread_scratch(int thread, size_t bytes) { return per_thread[thread].at_least(bytes); }
void* shared_scratch(int slot, size_t bytes) { return shared[slot].at_least(bytes); }

}  // namespace ft::pool
