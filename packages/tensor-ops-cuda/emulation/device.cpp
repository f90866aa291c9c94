// Functions that the threads of a kernel call.
#include "device.h"

#include <cstring>
#include <utility>

#include "running_grid.h"

namespace emulation {
namespace {

Thread& self() { return running->current(); }

// A GPU reads and writes aligned values only.
void check_alignment(const void* data, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % bytes != 0)
    fail_grid("an address is not a multiple of the " + std::to_string(bytes) + " bytes at it");
}

// The value that a lane gives to exchange(), and the one that it takes.
struct Exchanged {
  std::uint64_t given, taken;
  unsigned from;
};

// A lane that takes of one that is not there keeps its own value.
void exchange_all(void* const* lanes) {
  for (unsigned lane = 0; lane < kWarpThreads; ++lane) {
    auto* const own = static_cast<Exchanged*>(lanes[lane]);
    if (!own) continue;
    const auto* const from = static_cast<const Exchanged*>(lanes[own->from % kWarpThreads]);
    own->taken = (from ? from : own)->given;
  }
}

}  // namespace

void fail_grid(std::string why) {
  const Thread& thread = self();
  why.insert(0, "block " + std::to_string(thread.block->index) + ", thread " +
                    std::to_string(thread.number) + ": ");
  running->fail(std::move(why), false);
}

void* shared_memory() { return self().block->shared.get(); }
unsigned cluster_rank() { return self().block->rank; }
unsigned cluster_size() { return running->cluster_size(); }
unsigned lane() { return self().number % kWarpThreads; }

void* shared_memory_of(const void* own, unsigned rank) {
  const auto* first = static_cast<const char*>(shared_memory());
  return running->block(rank).shared.get() + (static_cast<const char*>(own) - first);
}

bool is_left_out(int wait) { return wait != 0 && wait == choices().left_out; }

void block_barrier(int wait) {
  if (!is_left_out(wait)) running->wait(self().block->all, {"the block's barrier", wait});
}

void named_barrier(unsigned number, unsigned threads, int wait) {
  if (is_left_out(wait)) return;
  Barrier& barrier = self().block->named.at(number);
  barrier.live = threads;
  running->wait(barrier, {"a numbered barrier", wait});
}

void cluster_barrier() { running->wait(*self().block->cluster, {"the cluster's barrier", 0}); }

void warp_barrier(int wait) {
  if (!is_left_out(wait)) do_together(nullptr, nullptr, wait);
}

void publish(void* to, const void* value, std::size_t bytes) {
  check_alignment(to, bytes);
  self().block->memory.write(to, value, bytes);
  // A write may be seen before the release.
  if (choices().order != Order::kFirstReady && choices().random() % 4 == 0)
    std::memcpy(to, value, bytes);
}

void observe(void* value, const void* from, std::size_t bytes) {
  check_alignment(from, bytes);
  self().block->memory.read(value, from, bytes);
}

unsigned add_release(unsigned* counter, unsigned addend, int wait) {
  check_alignment(counter, sizeof *counter);
  if (!is_left_out(wait)) self().block->memory.release();
  const unsigned before = *counter;
  *counter += addend;
  running->scheduler().memory_changed();
  return before;
}

unsigned load_acquire(const unsigned* counter, int wait) {
  check_alignment(counter, sizeof *counter);
  return running->load_acquire(counter, wait);
}

void copy_async(void* to, const void* from) {
  check_alignment(to, 16);
  check_alignment(from, 16);
  Thread& thread = self();
  AsyncCopy& copy = thread.copies.emplace_back();
  copy.to = to;
  copy.from = from;
  copy.group = thread.copy_groups;
  std::memcpy(copy.begun_with, from, 16);
  std::memset(to, 0xff, 16);
}

void commit_copies() { ++self().copy_groups; }

// The source may be read at any time until then: if it has changed, the result stays spoilt.
void wait_copies(unsigned groups_left, int wait) {
  if (is_left_out(wait)) return;
  Thread& thread = self();
  auto& copies = thread.copies;
  const auto is_awaited = [&](const AsyncCopy& copy) {
    return copy.group + groups_left < thread.copy_groups;
  };
  std::size_t awaited = 0;
  for (; awaited < copies.size() && is_awaited(copies[awaited]); ++awaited) {
    const AsyncCopy& copy = copies[awaited];
    if (std::memcmp(copy.begun_with, copy.from, 16) == 0) std::memcpy(copy.to, copy.from, 16);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(awaited));
}

std::uint64_t global_timer() { return running->scheduler().read_clock(); }

void do_together(void* own, Collective work, int wait, int line) {
  running->do_together(own, work, wait, line);
}

std::uint64_t exchange(std::uint64_t given, unsigned from_lane) {
  Exchanged own{given, given, from_lane};
  do_together(&own, exchange_all);
  return own.taken;
}

}  // namespace emulation
