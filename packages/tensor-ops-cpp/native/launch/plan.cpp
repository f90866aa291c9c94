#include "launch/plan.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "declaration/operand_axes.h"
#include "isa/float_mode.h"
#include "memory/streaming_stores.h"
#include "threads/pool.h"

namespace tensor_ops {
namespace {

std::ptrdiff_t signed_size(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

// Copies with a constant size, which compiles to plain moves.
template <std::size_t Item>
void copy_strided(char* to, std::ptrdiff_t to_stride, const char* from, std::ptrdiff_t from_stride,
                  std::size_t count) {
  for (; count > 0; --count, to += to_stride, from += from_stride) std::memcpy(to, from, Item);
}

void copy_elements(std::ptrdiff_t item, char* to, std::ptrdiff_t to_stride, const char* from,
                   std::ptrdiff_t from_stride, std::size_t count) {
  switch (item) {
    case 2:
      return copy_strided<2>(to, to_stride, from, from_stride, count);
    case 4:
      return copy_strided<4>(to, to_stride, from, from_stride, count);
    default:
      return copy_strided<8>(to, to_stride, from, from_stride, count);
  }
}

// How much is gathered at a time: a row; in an elementwise walk no more of it than fits the cache.
constexpr std::size_t kMostColumns = 4096;

std::size_t gathered_length(const Plan& plan, const Operand& operand) {
  return plan.walk == Walk::kElements ? std::min(operand.length, kMostColumns) : operand.length;
}

// Room for that of every operand that is not direct, rounded up to whole cache lines.
constexpr std::size_t kCacheLine = 64;

std::size_t scratch_size(const Plan& plan, const Operand& operand) {
  if (operand.is_direct) return 0;
  return (gathered_length(plan, operand) * kItemSizes[operand.dtype] + kCacheLine - 1) /
         kCacheLine * kCacheLine;
}

std::size_t scratch_size(const Plan& plan) {
  std::size_t size = 0;
  for (int k = 0; k < plan.operands; ++k) size += scratch_size(plan, plan.operand[k]);
  return size;
}

// The addresses of an element of a row in all arrays.
void locate(const Plan& plan, std::size_t row, std::size_t column, char** data) {
  for (int k = 0; k < plan.operands; ++k) {
    const Operand& operand = plan.operand[k];
    data[k] = operand.data;
    if (column) data[k] += signed_size(column) * operand.element_stride;
  }
  for (int d = plan.dims - 1; d >= 0; --d) {
    const auto index = signed_size(row % plan.shape[d]);
    row /= plan.shape[d];
    for (int k = 0; k < plan.operands; ++k)
      if (index) data[k] += index * plan.operand[k].stride[d];
  }
}

// One thread's walk over a block of rows and columns.
class Walker {
 public:
  Walker(const Plan& plan, Kernel kernel, const double* scalars, char* scratch)
      : plan_(plan), kernel_(kernel), scalars_(scalars) {
    for (int k = 0; k < plan.operands; ++k) {
      const Operand& operand = plan.operand[k];
      is_direct_ = is_direct_ && operand.is_direct;
      row_[k] = scratch;
      gathered_[k] = nullptr;
      gathered_count_[k] = 0;
      scratch += scratch_size(plan, operand);
      stride_[k] = plan.dims > 0 ? operand.stride[plan.dims - 1] : 0;
    }
  }

  // Columns other than all of them only in elementwise walks.
  void walk(std::size_t first_row, std::size_t last_row, std::size_t column, std::size_t columns) {
    const std::size_t inner = plan_.dims > 0 ? plan_.shape[plan_.dims - 1] : 1;
    for (std::size_t row = first_row; row < last_row;) {
      const std::size_t count = std::min(inner - row % inner, last_row - row);
      char* data[kMaxArrays];
      locate(plan_, row, column, data);
      if (is_direct_)
        kernel_({data, stride_, count, columns, scalars_, plan_.streams});
      else
        for (std::size_t r = 0; r < count; ++r) walk_gathered(data, r, columns);
      row += count;
    }
  }

 private:
  std::size_t length(const Operand& operand, std::size_t columns) const {
    return plan_.walk == Walk::kElements ? columns : operand.length;
  }

  void walk_gathered(char* const* first, std::size_t r, std::size_t columns) {
    const std::size_t step = plan_.walk == Walk::kElements ? kMostColumns : columns;
    for (std::size_t begin = 0; begin < columns; begin += step) {
      char* source[kMaxArrays];
      for (int k = 0; k < plan_.operands; ++k)
        source[k] = first[k] ? first[k] + signed_size(r) * stride_[k] +
                                   signed_size(begin) * plan_.operand[k].element_stride
                             : nullptr;
      run_gathered(source, std::min(step, columns - begin));
    }
  }

  void run_gathered(char* const* source, std::size_t columns) {
    char* data[kMaxArrays];
    for (int k = 0; k < plan_.operands; ++k) {
      const Operand& operand = plan_.operand[k];
      data[k] = operand.is_direct ? source[k] : row_[k];
      if (operand.is_direct || operand.is_output) continue;
      // A row that is used again, such as a weight, is gathered once. Rows that overlap may begin
      // where a shorter piece of another did.
      const std::size_t count = length(operand, columns);
      if (gathered_[k] == source[k] && gathered_count_[k] >= count) continue;
      copy_elements(operand.item_size(), row_[k], operand.item_size(), source[k],
                    operand.element_stride, count);
      gathered_[k] = source[k];
      gathered_count_[k] = count;
    }
    kernel_({data, stride_, 1, columns, scalars_, false});
    for (int k = 0; k < plan_.operands; ++k) {
      const Operand& operand = plan_.operand[k];
      if (operand.is_output && !operand.is_direct)
        copy_elements(operand.item_size(), source[k], operand.element_stride, row_[k],
                      operand.item_size(), length(operand, columns));
    }
  }

  const Plan& plan_;
  const Kernel kernel_;
  const double* const scalars_;
  bool is_direct_ = true;
  std::ptrdiff_t stride_[kMaxArrays];
  char* row_[kMaxArrays];
  const char* gathered_[kMaxArrays];
  std::size_t gathered_count_[kMaxArrays];
};

// The begin of part `index` of `parts` near-equal parts of `total`, in multiples of `grain`.
std::size_t part_begin(std::size_t total, std::size_t grain, int index, int parts) {
  const std::size_t grains = (total + grain - 1) / grain;
  const std::size_t each = grains / static_cast<std::size_t>(parts);
  const std::size_t rest = grains % static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  return std::min(total, (i * each + std::min(i, rest)) * grain);
}

// More pieces than threads: one that comes late, or is held up, leaves its share to the others.
constexpr int kPiecesPerThread = 8;

struct Job {
  const Plan& plan;
  Kernel kernel;
  const double* scalars;
  int pieces;
  char* scratch;
  std::size_t scratch_each;
};

void run_piece(const void* context, int piece) {
  const Job& job = *static_cast<const Job*>(context);
  const DefaultFloatMode mode;
  const Plan& plan = job.plan;
  Walker walker(plan, job.kernel, job.scalars,
                job.scratch + job.scratch_each * static_cast<std::size_t>(piece));
  const bool cuts_rows =
      plan.walk == Walk::kElements && plan.rows < static_cast<std::size_t>(job.pieces);
  if (cuts_rows) {
    constexpr std::size_t kGrain = 1024;  // keeps threads off one another's cache lines
    const std::size_t begin = part_begin(plan.n, kGrain, piece, job.pieces);
    const std::size_t end = part_begin(plan.n, kGrain, piece + 1, job.pieces);
    if (begin < end) walker.walk(0, plan.rows, begin, end - begin);
  } else {
    walker.walk(part_begin(plan.rows, 1, piece, job.pieces),
                part_begin(plan.rows, 1, piece + 1, job.pieces), 0, plan.n);
  }
  if (plan.streams) finish_streaming_stores();
}

struct SharedRow {
  const Run& row;
  const RowStep* step;
  std::size_t chunks;
  int pieces;
  const double* found;
  double* partials;
};

void run_piece_of_row(const void* context, int piece) {
  const SharedRow& shared = *static_cast<const SharedRow*>(context);
  const DefaultFloatMode mode;
  const std::size_t end = part_begin(shared.chunks, 1, piece + 1, shared.pieces);
  for (std::size_t chunk = part_begin(shared.chunks, 1, piece, shared.pieces); chunk < end; ++chunk)
    shared.step->run({shared.row, chunk * kChunk, std::min(shared.row.n, (chunk + 1) * kChunk),
                      shared.found, shared.partials + chunk * kPartials});
  if (shared.row.streams) finish_streaming_stores();
}

}  // namespace

void simplify(Plan& plan) {
  plan.dims = merge_axes(plan.shape, plan.dims, plan.operand, plan.operands);
  if (plan.walk == Walk::kElements) {
    const std::size_t n = plan.n;
    plan.dims = merge_rows(plan.n, plan.shape, plan.dims, plan.operand, plan.operands);
    plan.rows /= plan.n / n;
  }
  for (int k = 0; k < plan.operands; ++k)
    plan.operand[k].is_direct = is_direct(plan.operand[k], plan.dims);
}

void execute(const Plan& plan, Kernel kernel, const double* scalars, int threads) {
  const std::size_t units = plan.walk == Walk::kElements ? plan.rows * plan.n : plan.rows;
  const int wanted = threads > 1 ? kPiecesPerThread * threads : 1;
  const int pieces = static_cast<int>(
      std::min<std::size_t>(static_cast<std::size_t>(std::min(wanted, kMostPieces)), units));
  const std::size_t each = scratch_size(plan);
  std::unique_ptr<char[]> scratch;
  char* aligned = nullptr;
  if (each > 0) {
    scratch.reset(new char[each * static_cast<std::size_t>(pieces) + kCacheLine]);
    const auto address = reinterpret_cast<std::uintptr_t>(scratch.get());
    aligned = scratch.get() + (kCacheLine - address % kCacheLine) % kCacheLine;
  }
  const Job job{plan, kernel, scalars, pieces, aligned, each};
  run_pieces(pieces, threads, run_piece, &job);
}

bool should_share_rows(const Plan& plan, const RowSteps& steps, int threads) {
  constexpr std::size_t kFewestChunks = 4;
  return steps.count > 0 && threads > 1 && plan.rows < static_cast<std::size_t>(threads) &&
         plan.n >= kFewestChunks * kChunk &&
         std::all_of(
             plan.operand, plan.operand + plan.operands,
             [](const Operand& operand) { return operand.is_direct || !operand.data; });
}

void execute_sharing_rows(const Plan& plan, const RowSteps& steps, const double* scalars,
                          int threads) {
  const std::size_t chunks = (plan.n + kChunk - 1) / kChunk;
  const int pieces = static_cast<int>(std::min(
      static_cast<std::size_t>(std::min(kPiecesPerThread * threads, kMostPieces)), chunks));
  std::vector<double> partials(chunks * kPartials);
  for (std::size_t r = 0; r < plan.rows; ++r) {
    char* data[kMaxArrays];
    const std::ptrdiff_t no_stride[kMaxArrays] = {};
    locate(plan, r, 0, data);
    const Run row{data, no_stride, 1, plan.n, scalars, plan.streams};
    double found[kFound] = {};
    for (std::size_t s = 0; s < steps.count; ++s) {
      const RowStep& step = steps.step[s];
      const SharedRow shared{row, &step, chunks, pieces, found, partials.data()};
      run_pieces(pieces, threads, run_piece_of_row, &shared);
      if (step.finish) step.finish(row, partials.data(), chunks, found);
    }
  }
}

}  // namespace tensor_ops
