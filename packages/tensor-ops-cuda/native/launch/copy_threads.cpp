#include "launch/copy_threads.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace tensor_ops {
namespace {

// More than this do not copy faster: the memory is busy.
constexpr int kMostThreads = 8;

int allowed_threads() {
  cpu_set_t set;
  const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::clamp(cpus, 1, kMostThreads);
}

// Of one call of in_parts().
struct Batch {
  std::mutex mutex;
  std::condition_variable all_done;
  std::int64_t left;

  void finish_one() {
    const std::lock_guard lock(mutex);
    if (--left == 0) all_done.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex);
    all_done.wait(lock, [this] { return left == 0; });
  }
};

// Its threads live as long as the process: they own nothing that would have to be given back.
class CopyThreads {
 public:
  CopyThreads() {
    for (int i = 1; i < allowed_threads(); ++i) {
      try {
        std::thread([this] { work_forever(); }).detach();
        ++helpers_;
      } catch (const std::system_error&) {
        return;  // fewer do it too
      }
    }
  }

  int helpers() const { return helpers_; }

  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(work));
    }
    is_there_work_.notify_one();
  }

 private:
  void work_forever() {
    for (;;) {
      std::unique_lock lock(mutex_);
      is_there_work_.wait(lock, [this] { return !waiting_.empty(); });
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable is_there_work_;
  std::deque<std::function<void()>> waiting_;
  int helpers_ = 0;
};

CopyThreads& copy_threads() {
  static auto* threads = new CopyThreads;
  return *threads;
}

}  // namespace

void in_parts(std::int64_t count, std::int64_t least,
              const std::function<void(std::int64_t, std::int64_t)>& work) {
  const std::int64_t most = count / std::max<std::int64_t>(least, 1);
  if (most < 2) return work(0, count);
  CopyThreads& threads = copy_threads();
  const std::int64_t parts = std::min<std::int64_t>(most, threads.helpers() + 1);
  const auto begin_of = [=](std::int64_t part) {
    return count / parts * part + std::min(part, count % parts);
  };
  Batch batch;
  batch.left = parts - 1;
  for (std::int64_t part = 1; part < parts; ++part) {
    const auto job = [&, part] {
      work(begin_of(part), begin_of(part + 1));
      batch.finish_one();
    };
    try {
      threads.add(job);
    } catch (const std::bad_alloc&) {
      job();
    }
  }
  work(0, begin_of(1));
  batch.wait();
}

}  // namespace tensor_ops
