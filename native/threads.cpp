// The library's own threads: they start with the first work and then wait for more. A process that was forked starts its
// own. Work that comes while others work is done by the thread that brings it.
#include "threads.h"

#include <pthread.h>

#include <new>

namespace {

struct Pool {
  pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t begin = PTHREAD_COND_INITIALIZER, end = PTHREAD_COND_INITIALIZER;
  void (*work)(void*, int64_t) = nullptr;
  void* context = nullptr;
  int64_t count = 0, wanted = 0, working = 0, begun = 0;  // threads, and how often work has begun
};

Pool* pool = nullptr;  // never freed: its threads wait for it
pthread_once_t once = PTHREAD_ONCE_INIT;

void make_pool() { pool = new Pool; }

struct Start {
  Pool* pool;
  int64_t thread;
};

void* serve(void* given) {
  Start start = *static_cast<Start*>(given);
  delete static_cast<Start*>(given);
  Pool& own = *start.pool;
  pthread_mutex_lock(&own.lock);
  for (int64_t seen = own.begun - 1;;) {
    while (own.begun == seen) pthread_cond_wait(&own.begin, &own.lock);
    seen = own.begun;
    if (start.thread > own.wanted) continue;
    own.working++;
    pthread_mutex_unlock(&own.lock);
    own.work(own.context, start.thread);
    pthread_mutex_lock(&own.lock);
    if (--own.working == 0) pthread_cond_signal(&own.end);
  }
  return nullptr;
}

// Start another thread; return whether there is one.
bool start(Pool& own) {
  auto* given = new (std::nothrow) Start{&own, own.count + 1};
  pthread_t thread;
  if (!given) return false;
  if (pthread_create(&thread, nullptr, serve, given) != 0) {
    delete given;
    return false;
  }
  pthread_detach(thread);
  own.count++;
  return true;
}

}  // namespace

void in_threads(int64_t num_threads, void (*work)(void*, int64_t), void* context) {
  pthread_once(&once, [] {
    make_pool();
    pthread_atfork(nullptr, nullptr, make_pool);
  });
  Pool& own = *pool;
  if (num_threads < 2 || pthread_mutex_trylock(&own.turn) != 0) return work(context, 0);
  pthread_mutex_lock(&own.lock);
  while (own.count + 1 < num_threads && start(own)) {
  }
  own.work = work;
  own.context = context;
  own.wanted = num_threads - 1 < own.count ? num_threads - 1 : own.count;
  own.begun++;
  pthread_cond_broadcast(&own.begin);
  pthread_mutex_unlock(&own.lock);
  work(context, 0);
  pthread_mutex_lock(&own.lock);
  own.wanted = 0;  // all is done: nobody waits for a thread that has not woken up
  while (own.working > 0) pthread_cond_wait(&own.end, &own.lock);
  pthread_mutex_unlock(&own.lock);
  pthread_mutex_unlock(&own.turn);
}
