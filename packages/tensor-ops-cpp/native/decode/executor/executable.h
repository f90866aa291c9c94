// A program made ready to run: its weights packed, its memory taken, its threads started.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "declaration/shared.h"
#include "decode/executor/memory.h"
#include "decode/executor/node_kernels.h"
#include "decode/executor/packed_weights.h"
#include "decode/executor/team.h"
#include "decode/executor/workers_in_use.h"
#include "decode/ranks/exchange.h"
#include "decode/serving/executor.h"

namespace tensor_ops::decode {

// Called on the calling thread with tensors of the program that are not read again, by index.
using LetGo = std::function<void(const std::vector<std::size_t>&)>;

struct CompileOptions {
  std::size_t threads;
  ActivationType activations;
  Progress progress = {};   // called on the calling thread
  TensorBytes packed = {};  // what packed() of another executable returned; null: pack the weights
  // Whether weights in mapped files are packed little by little after steps, which then read the
  // files, so that no step waits for all of them. Else all are packed when it is compiled.
  bool packs_in_steps = false;
  // The bytes that each worker packs after a step; 0: what it can in the time that the step took,
  // but not less than pack_after_step() says.
  std::size_t packed_per_step = 0;
  LetGo let_go = {};  // called as weights are packed when the program is compiled
  // With other ranks: which this is, how many there are, and how they exchange values.
  std::size_t rank = 0, world_size = 1;
  std::shared_ptr<Exchange> exchange = {};
};

class TENSOR_OPS_SHARED Executable final : public Executor {
 public:
  // tensors: of the program, by index. Matrices may be missing where `options` has packed weights.
  // Throws ValueError, MemoryError or Error, before any memory is taken unless the system refuses
  // it.
  Executable(Program program, const std::vector<TensorBytes>& tensors,
             const CompileOptions& options);
  // The bytes that an executable of this program would take if it packed its weights, by what takes
  // them. Takes none of that memory. Throws MemoryError where a size is more than any memory.
  static MemorySizes memory_of(Program program, const CompileOptions& options);
  ~Executable() override;

  void take_step(const Step& step) override;
  void release() override;
  ActivationType activations() const override { return activations_; }
  std::size_t num_workers() const override { return threads_; }
  std::size_t first_nan(const Step& step, std::size_t slot) override;
  StepProfile profile(const Step& step) override;
  // Reads the packed weights. Throws Error where the program has no matrices.
  double read_bandwidth() override;
  const char* lost_by_fork() const override;

  // Fixes the number of workers that take part in a step; 0 leaves it to WorkersInUse again. This
  // is for measurements: no result depends on it.
  void hold_workers(std::size_t count) { workers_in_use_.hold(count); }
  // The packed weights, piece by piece in an order that does not depend on the threads.
  std::vector<PackedPiece> packed();
  std::size_t packed_size() const { return packed_size_; }  // bytes
  // Whether all weights are packed. Else steps read the tensors of matrices in mapped files.
  bool is_packed() const { return is_packed_; }
  // The bytes of a page of all caches, and of a state of all nodes.
  std::size_t page_bytes() const { return cache_bytes_[kOfPages]; }
  std::size_t state_bytes() const { return cache_bytes_[kOfStates]; }
  // Copy what a page or a state holds, or give it what another one held. Throw ValueError for a
  // number that there is none of.
  void read_page(std::size_t number, unsigned char* to) const { copy(kOfPages, number, to); }
  void write_page(std::size_t number, const unsigned char* from) { fill(kOfPages, number, from); }
  void read_state(std::size_t number, unsigned char* to) const { copy(kOfStates, number, to); }
  void write_state(std::size_t number, const unsigned char* from) { fill(kOfStates, number, from); }
  // Whether rows of a tensor are looked up in the caller's memory at each step.
  bool reads_from_caller(std::size_t tensor) const;

 private:
  // Caches whose memory is divided alike.
  enum CacheGroup : std::size_t { kOfSlots, kOfStates, kOfPages };
  static constexpr std::size_t kCacheGroups = 3;
  static CacheGroup group_of(const Cache& cache);

  // A node as a step needs it, with the share of each thread. Of a phase, the main one runs.
  struct Compiled {
    NodeKernels kernels;
    Rows rows;
    bool meets_before;
    std::size_t sent_columns;  // of a row, to other ranks; 0: exchanges nothing
    std::vector<PreparedKind> prepared;
    std::vector<std::vector<TileRun>> tiles;  // by thread
    std::size_t groups = 0;                   // of tiles; of stacks, one for each expert
    std::size_t packed_by = kAbsent;          // the node that packs the tiles
    std::vector<Share> shares;                // by thread
    std::unique_ptr<TileClaims[]> claims;     // by thread; null where there are no tiles
  };
  struct Layout;

  // Takes no memory that grows with the sizes of the program.
  Executable(Program program, const CompileOptions& options);
  Layout plan();
  void plan_caches(Layout& layout) const;
  Share share_of(const Node& node, const Layout& layout) const;
  void plan_products(std::size_t node);
  void plan_scratch(std::size_t node, Layout& layout) const;
  void plan_parameters(std::size_t node, Layout& layout);
  void add_up(const Layout& layout, bool is_packed);
  void require_memory() const;
  void allocate(const Layout& layout);
  void fill_parameters(const Layout& layout);
  void place_tiles();
  // Lets nodes that others pack the tiles of see how many there are.
  void note_packed();
  void make_shares(const Layout& layout);
  // Packs some of what is left after a step, unless it was the first.
  void pack_after_step(Team::Clock::duration taken);
  // Packs what is left, node by node: of all weights, or of those that are in no mapped file.
  void pack_rest(bool of_mapped_files, const Progress& progress, const LetGo& let_go = {});
  // The matrices of a node that neither a later node nor a step reads.
  std::vector<std::size_t> last_read_by(std::size_t node) const;
  void begin_step(const Step& step);
  bool has_nan(std::size_t node, std::size_t slot) const;
  void copy(CacheGroup group, std::size_t number, unsigned char* to) const;
  void fill(CacheGroup group, std::size_t number, const unsigned char* from);
  // Calls visit(address, bytes) for each part of a page, or of a state.
  template <class Visit>
  void for_parts(CacheGroup group, std::size_t number, Visit visit) const;
  // Calls work(worker, watch(worker)) on each worker of a step. Throws what has ended an exchange.
  template <class WatchOf>
  void run_workers(WatchOf watch_of);
  template <class Watch>
  void work(std::size_t worker, Watch watch);
  // Meets the other ranks. Returns whether they have come, to each worker of the team.
  bool exchange(std::size_t worker, std::size_t node, std::size_t rows);
  std::pair<std::size_t, std::size_t> shares_of(std::size_t worker) const;  // first and end

  std::vector<TensorBytes> tensors_;
  const std::size_t threads_;
  const ActivationType activations_;
  const std::size_t packed_per_step_;
  std::size_t packed_size_ = 0;
  std::atomic<bool> is_packed_{false};
  bool has_run_ = false;

  const OwnerProcess owner_;
  Step step_{};
  std::vector<Compiled> nodes_;
  PackedTiles weights_;
  std::vector<Memory> own_;  // scratch, by thread
  Memory parameters_, caches_, values_, shared_;
  std::vector<CacheMemory> cache_memory_;       // of each cache
  std::size_t cache_bytes_[kCacheGroups] = {};  // of a page
  std::unique_ptr<Team> team_;
  WorkersInUse workers_in_use_;
  std::size_t workers_ = 1;  // in this step

  std::shared_ptr<Exchange> exchange_;  // null: there is one rank
  const std::size_t world_size_;
  std::exception_ptr exchange_error_;  // of this step
};

}  // namespace tensor_ops::decode
