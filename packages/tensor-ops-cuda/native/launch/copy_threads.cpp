#include "launch/copy_threads.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace tensor_ops {
namespace {

// More threads do not copy faster: a few keep the memory busy.
constexpr int kMostThreads = 8;

int allowed_threads() {
  cpu_set_t set;
  const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::clamp(cpus, 1, kMostThreads);
}

// The threads live as long as the process, and own nothing that would have to be released.
class CopyThreads {
 public:
  CopyThreads() {
    for (; count_ + 1 < allowed_threads(); ++count_) {
      try {
        std::thread([this] { run_tasks(); }).detach();
      } catch (const std::system_error&) {
        return;  // The copies are shared by those that could be started.
      }
    }
  }

  int count() const { return count_; }

  void add(std::packaged_task<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    has_tasks_.notify_one();
  }

 private:
  void run_tasks() {
    for (;;) {
      std::unique_lock lock(mutex_);
      has_tasks_.wait(lock, [this] { return !tasks_.empty(); });
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable has_tasks_;
  std::deque<std::packaged_task<void()>> tasks_;
  int count_ = 0;
};

CopyThreads& copy_threads() {
  static auto* threads = new CopyThreads;
  return *threads;
}

}  // namespace

void run_in_parallel(std::int64_t count, std::int64_t least,
                     const std::function<void(std::int64_t, std::int64_t)>& work) {
  const std::int64_t most = count / std::max<std::int64_t>(least, 1);
  if (most < 2) return work(0, count);
  CopyThreads& threads = copy_threads();
  const std::int64_t parts = std::min<std::int64_t>(most, threads.count() + 1);
  const auto begin_of = [=](std::int64_t part) {
    return count / parts * part + std::min(part, count % parts);
  };
  const auto run_part = [&](std::int64_t part) { work(begin_of(part), begin_of(part + 1)); };
  std::vector<std::future<void>> others;
  for (std::int64_t part = 1; part < parts; ++part) {
    try {
      std::packaged_task<void()> task([&run_part, part] { run_part(part); });
      others.push_back(task.get_future());
      threads.add(std::move(task));
    } catch (const std::bad_alloc&) {
      run_part(part);  // The task was not added.
    }
  }
  run_part(0);
  for (const std::future<void>& each : others) each.wait();
}

}  // namespace tensor_ops
