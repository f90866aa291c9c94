#include "launch/plan.h"

#include <algorithm>
#include <vector>

#include "declaration/operand_axes.h"
#include "isa/float_mode.h"
#include "launch/walker.h"
#include "memory/cache.h"
#include "threads/pool.h"

namespace tensor_ops {
namespace {

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
  const Scratch& scratch;
};

void run_piece(const void* context, int piece) {
  const Job& job = *static_cast<const Job*>(context);
  const DefaultFloatMode mode;
  const Plan& plan = job.plan;
  Walker walker(plan, job.kernel, job.scalars, job.scratch.of(piece));
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
  const Scratch scratch(plan, pieces);
  const Job job{plan, kernel, scalars, pieces, scratch};
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
