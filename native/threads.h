// The library's own threads.
#pragma once
#include "export.h"

// Call `work(context, thread)` for each thread from 0 on, in as many threads at once, and wait for all; thread 0 is the
// caller's. It must not throw. Fewer threads may come, so all must share what there is to do.
void in_threads(int64_t num_threads, void (*work)(void* context, int64_t thread), void* context);

// Call `work(thread)`, which must not throw, as above.
template <class Work>
void in_threads(int64_t num_threads, const Work& work) {
  in_threads(num_threads, [](void* context, int64_t thread) { (*static_cast<const Work*>(context))(thread); },
             const_cast<Work*>(&work));
}
