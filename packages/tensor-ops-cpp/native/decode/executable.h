// A program made ready to run: its weights packed, its memory taken, its threads started.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "decode/memory.h"
#include "decode/program.h"
#include "decode/step_arrays.h"
#include "decode/team.h"

namespace tensor_ops::decode {

struct TensorBytes {
  const unsigned char* first = nullptr;  // null where not given
  std::size_t bytes = 0;
};

// Called on the calling thread with the bytes of weights that are done, and of all. May throw.
using Progress = std::function<void(std::size_t, std::size_t)>;

struct CompileOptions {
  std::size_t threads;
  ActivationType activations;
  Progress progress;
};

class Executable {
 public:
  // tensors: by index, those of the program. Throws ValueError, MemoryError or Error, before any
  // memory is taken unless the system refuses it.
  Executable(Program program, const std::vector<TensorBytes>& tensors,
             const CompileOptions& options);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable();

  // Runs one step of what is in the arrays. Calls of several threads take turns. Throws ValueError
  // before anything is written, and Error after close() and in a forked child.
  void run(std::size_t num_tokens, std::size_t num_selected);
  // Frees all but the arrays. A second call does nothing.
  void close();

  const StepArrays& arrays() const { return arrays_; }
  // What takes how many bytes.
  const std::vector<std::pair<const char*, std::size_t>>& memory() const { return memory_; }
  std::size_t threads() const { return threads_; }
  // Whether rows of a tensor are looked up in the caller's memory at each step.
  bool reads_from_caller(std::size_t tensor) const;

 private:
  // A node and what each thread does of it; all that a step needs.
  struct Compiled {
    NodeKernels kernels;
    Rows rows;
    bool meets_before;
    std::vector<PreparedKind> prepared;
    std::vector<std::vector<TileRun>> tiles;  // by thread
    std::vector<Share> shares;                // by thread
  };
  struct Layout;

  void require_tensors() const;
  Layout plan(ActivationType wanted);
  void plan_products(std::size_t node, ActivationType wanted, Layout& layout);
  void plan_parameters(std::size_t node, Layout& layout);
  void require_memory(const Layout& layout);
  void allocate(const Layout& layout);
  void fill_parameters(const Layout& layout);
  void make_shares(const Layout& layout);
  void pack_all(const Layout& layout, const Progress& progress);
  void pack(std::size_t node, std::size_t thread) const;
  void work(std::size_t thread);

  const Program program_;
  std::vector<TensorBytes> tensors_;
  const std::size_t threads_;
  StepArrays arrays_;
  std::vector<std::pair<const char*, std::size_t>> memory_;

  const OwnerProcess owner_;
  std::mutex running_;
  Step step_{};
  std::vector<Compiled> nodes_;
  std::vector<Memory> streams_;  // packed weights, by thread
  std::vector<Memory> own_;      // scratch, by thread
  Memory parameters_, caches_, values_, shared_;
  std::unique_ptr<Team> team_;  // null once closed
};

}  // namespace tensor_ops::decode
