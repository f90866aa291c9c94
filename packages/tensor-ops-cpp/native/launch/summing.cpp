// Calls with results that are sums over all rows.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "isa/float_mode.h"
#include "launch/plan.h"
#include "launch/walker.h"
#include "memory/cache.h"
#include "threads/pool.h"

namespace tensor_ops {
namespace {

// Blocks of rows are summed by any thread, and then their sums one after another.
struct Blocks {
  std::size_t count, rows;  // the last one may have fewer rows
};

Blocks blocks_of(const Plan& plan) {
  // Few enough that adding up their sums takes little time beside the rows, and little memory.
  constexpr std::size_t kFewestRows = kMostSummed, kMost = 64, kMostSums = std::size_t{1} << 22;
  const std::size_t wanted = std::min((plan.rows + kFewestRows - 1) / kFewestRows, kMost);
  const std::size_t most = std::max<std::size_t>(1, kMostSums / plan.n);
  const std::size_t count = std::min(wanted, most);
  const std::size_t rows = (plan.rows + count - 1) / count;
  return {(plan.rows + rows - 1) / rows, rows};
}

// The sums of a block, of all outputs that are sums one after another.
class BlockSums {
 public:
  BlockSums(std::size_t sums, std::size_t n, DType dtype)
      : n_(n),
        size_(sums * n),
        item_(dtype == kFloat64 ? sizeof(double) : sizeof(float)),
        numbers_(new char[size_ * item_]),
        totals_(new double[size_]) {}

  Summed summed(std::size_t sum) const {
    return {numbers_.get() + sum * n_ * item_, totals_.get() + sum * n_};
  }

  void clear() { std::fill_n(totals_.get(), size_, 0.0); }
  void clear_numbers() { std::memset(numbers_.get(), 0, size_ * item_); }
  void take_over_numbers() { item_ == sizeof(double) ? add<double>() : add<float>(); }
  void add_to(double* totals) const {
    for (std::size_t i = 0; i < size_; ++i) totals[i] += totals_[i];
  }

 private:
  template <class T>
  void add() {
    const T* numbers = reinterpret_cast<const T*>(numbers_.get());
    for (std::size_t i = 0; i < size_; ++i) totals_[i] += static_cast<double>(numbers[i]);
  }

  std::size_t n_, size_, item_;
  std::unique_ptr<char[]> numbers_;
  std::unique_ptr<double[]> totals_;
};

struct Summation {
  const Plan& plan;
  const RowKernel& kernel;
  const double* scalars;
  Blocks blocks;
  std::vector<BlockSums>& sums;  // of each block, or of one where there is one thread
  const Scratch& scratch;
};

void sum_block(const Summation& summation, std::size_t block, BlockSums& sums, char* scratch) {
  Plan plan = summation.plan;
  Summed summed[kMaxOutputs];
  std::size_t count = 0;
  for (int k = 0; k < plan.operands; ++k) {
    if (!plan.operand[k].is_sum) continue;
    summed[count] = sums.summed(count);
    plan.operand[k].data = reinterpret_cast<char*>(&summed[count++]);
  }
  sums.clear();
  Walker walker(plan, summation.kernel.run, summation.scalars, scratch);
  const std::size_t end = std::min(plan.rows, (block + 1) * summation.blocks.rows);
  for (std::size_t row = block * summation.blocks.rows; row < end; row += kMostSummed) {
    sums.clear_numbers();
    walker.walk(row, std::min(end, row + kMostSummed), 0, plan.n);
    sums.take_over_numbers();
  }
  if (plan.streams) finish_streaming_stores();
}

void run_block(const void* context, int piece) {
  const Summation& summation = *static_cast<const Summation*>(context);
  const DefaultFloatMode mode;
  const auto block = static_cast<std::size_t>(piece);
  sum_block(summation, block, summation.sums[block], summation.scratch.of(piece));
}

}  // namespace

void execute_summing(const Plan& given, const RowKernel& kernel, const double* scalars,
                     int threads) {
  const DefaultFloatMode mode;
  Plan plan = given;
  std::size_t count = 0;
  for (int k = 0; k < plan.operands; ++k) {
    if (!plan.operand[k].is_sum) continue;
    plan.operand[k].is_direct = true;
    ++count;
  }
  const Blocks blocks = blocks_of(plan);
  const int pieces = threads > 1 ? static_cast<int>(blocks.count) : 1;
  std::vector<BlockSums> sums;
  sums.reserve(static_cast<std::size_t>(pieces));
  for (int piece = 0; piece < pieces; ++piece)
    sums.emplace_back(count, plan.n, plan.operand[0].dtype);
  std::vector<double> totals(count * plan.n);
  const Scratch scratch(plan, pieces);
  const Summation summation{plan, kernel, scalars, blocks, sums, scratch};
  if (pieces > 1) {
    run_pieces(pieces, threads, run_block, &summation);
    for (const BlockSums& each : sums) each.add_to(totals.data());
  } else {
    for (std::size_t block = 0; block < blocks.count; ++block) {
      sum_block(summation, block, sums[0], scratch.of(0));
      sums[0].add_to(totals.data());
    }
  }
  const double* of_output = totals.data();
  for (int k = 0; k < plan.operands; ++k) {
    const Operand& operand = plan.operand[k];
    if (!operand.is_sum) continue;
    kernel.write_totals(of_output, plan.n, operand.data, operand.element_stride);
    of_output += plan.n;
  }
}

}  // namespace tensor_ops
