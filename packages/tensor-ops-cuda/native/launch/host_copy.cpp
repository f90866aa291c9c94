#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "launch/area.h"

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

// Calls work(begin, end) for parts of [0, count) on this thread and others, and returns when all
// calls have. A part has at least `least` items. The work must not throw.
template <class Work>
void run_in_parallel(std::int64_t count, std::int64_t least, Work work) {
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

// Fewer bytes are copied in less time than it takes to start another thread on them.
constexpr std::int64_t kLeastBytes = 1 << 20;

template <std::size_t kItem>
void copy_items(char* to, std::int64_t to_step, const char* from, std::int64_t from_step,
                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_step, from + i * from_step, kItem);
}

void copy_run(char* to, std::int64_t to_step, const char* from, std::int64_t from_step,
              std::int64_t item_size, std::int64_t count) {
  if (to_step == item_size && from_step == item_size)
    std::memcpy(to, from, static_cast<std::size_t>(count * item_size));
  else if (item_size == 2)
    copy_items<2>(to, to_step, from, from_step, count);
  else if (item_size == 4)
    copy_items<4>(to, to_step, from, from_step, count);
  else
    copy_items<8>(to, to_step, from, from_step, count);
}

// Calls copy(address in the area, index of the first element, count) for runs of the last axis that
// make up the elements [begin, end).
template <class Copy>
void for_each_run(const StridedArea& area, std::int64_t begin, std::int64_t end, Copy copy) {
  const int last = area.axes - 1;
  std::int64_t at[kMaxDims + 1];
  char* data = area.data;
  std::int64_t rest = begin;
  for (int d = last; d >= 0; --d) {
    at[d] = rest % area.extent[d];
    rest /= area.extent[d];
    data += at[d] * area.stride[d];
  }
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t count = std::min(end - i, area.extent[last] - at[last]);
    copy(data, i, count);
    i += count;
    data -= at[last] * area.stride[last];
    at[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      data += area.stride[d];
      if (++at[d] < area.extent[d]) break;
      data -= at[d] * area.stride[d];
      at[d] = 0;
    }
  }
}

template <class Copy>
void for_each_run_in_parallel(const StridedArea& area, Copy copy) {
  run_in_parallel(
      area.count(), kLeastBytes / area.item_size,
      [&](std::int64_t begin, std::int64_t end) { for_each_run(area, begin, end, copy); });
}

}  // namespace

void pack(const StridedArea& from, char* to) {
  const std::int64_t item = from.item_size, step = from.stride[from.axes - 1];
  for_each_run_in_parallel(from, [=](const char* run, std::int64_t first, std::int64_t count) {
    copy_run(to + first * item, item, run, step, item, count);
  });
}

void unpack(const char* from, const StridedArea& to) {
  const std::int64_t item = to.item_size, step = to.stride[to.axes - 1];
  for_each_run_in_parallel(to, [=](char* run, std::int64_t first, std::int64_t count) {
    copy_run(run, step, from + first * item, item, item, count);
  });
}

}  // namespace tensor_ops
