// The library's own threads.
#pragma once
#include <algorithm>
#include <atomic>

#include "export.h"

// Call `work(context, thread)` for each thread from 0 on, in as many threads at once, and wait for all; thread 0 is the
// caller's. It must not throw. Fewer threads may come, so all must share what there is to do.
void in_threads(int64_t num_threads, void (*work)(void* context, int64_t thread), void* context);

// Call `work(state, number)` for each number below `count`, in threads, with the `make(thread)` of each as its state. Returns
// 0, or -1 if memory has run out.
template <class Make, class Work>
int64_t share_out(int64_t count, int64_t num_threads, Make make, Work work) {
  std::atomic<int64_t> next{0}, result{0};
  auto in_thread = [&](int64_t thread) {
    try {
      auto state = make(thread);
      for (int64_t n; (n = next++) < count;) work(state, n);
    } catch (const std::exception&) {
      result = -1;
    }
  };
  in_threads(std::min(num_threads, count),
             [](void* context, int64_t thread) { (*static_cast<decltype(in_thread)*>(context))(thread); }, &in_thread);
  return result;
}
