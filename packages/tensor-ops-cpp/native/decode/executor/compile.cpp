// How an Executable is made: what memory is needed, where everything lies in it, and the packing.
#include <algorithm>
#include <string_view>

#include "declaration/errors.h"
#include "decode/executor/executable.h"
#include "decode/executor/node_kernels.h"
#include "decode/executor/product_scratch.h"
#include "decode/program/pieces.h"
#include "decode/program/sizes.h"
#include "decode/program/value_plan.h"
#include "decode/ranks/exchange_sizes.h"
#include "isa/isa.h"
#include "threads/threads.h"

namespace tensor_ops::decode {
namespace {

CacheMemory cache_memory(const Limits& limits, const Cache& cache, bool keeps_heads) {
  CacheMemory memory{};
  memory.type = cache.type;
  memory.is_paged = cache.is_paged;
  memory.num_pages = limits.num_states();
  memory.pages_of_piece = 1;
  if (cache.form == CacheForm::kState) {
    memory.page_bytes = aligned(
        size_product("cache '" + cache.name + "'", cache.rows, cache.columns, sizeof(float)));
    return memory;
  }
  memory.num_pages = cache.is_paged ? limits.num_pages : limits.max_requests;
  memory.page_size = cache.is_paged ? limits.page_size : limits.max_seq_length;
  memory.head_size = cache.head_size;
  memory.pages_of_piece =
      static_cast<std::uint32_t>(std::max(kPiecePositions / memory.page_size, std::size_t{1}));
  const std::size_t kept = kept_positions(cache.type, memory.page_size);
  const std::size_t each = position_bytes(cache.type, cache.head_size, cache.value_size);
  // Names the cache if it is too large; nothing else is wanted of the product.
  size_product("cache '" + cache.name + "'", memory.num_pages, cache.num_kv_heads, kept, each);
  memory.page_bytes = aligned(kept * each);
  memory.has_groups =
      keeps_heads && cache.type != CacheType::kInt8 && memory.page_size % kCacheBlock == 0;
  return memory;
}

// Whether a cache has keys and values of heads, instead of latents.
bool keeps_heads(const Program& program, std::size_t cache) {
  return std::none_of(program.nodes.begin(), program.nodes.end(), [&](const Node& node) {
    return node.cache == cache && std::string_view(node.kind->name) == "latent_attention";
  });
}

}  // namespace

Executable::CacheGroup Executable::group_of(const Cache& cache) {
  if (cache.form == CacheForm::kState) return kOfStates;
  return cache.is_paged ? kOfPages : kOfSlots;
}

// Offsets into the blocks of memory, and their sizes.
struct Executable::Layout {
  ValuePlan values;
  std::vector<bool> uses_shared;
  // Vectors and tables: the tensors of a slot lie one behind the other.
  std::map<std::vector<std::size_t>, std::size_t> parameters;
  std::vector<CacheMemory> caches;
  std::size_t parameter_bytes = 0, cache_bytes = 0,
              state_bytes = 0;  // the states are among the caches
  std::size_t offset_of_caches[kCacheGroups] = {}, page_of_all[kCacheGroups] = {};
  Scratch scratch;

  // Nodes run one after another, and so share the memory of the one that wants the most.
  void take_scratch(const Node& node, std::size_t n, const Scratch& wanted) {
    scratch.own = std::max(scratch.own, size_product(node.where(), wanted.own));
    scratch.shared = std::max(scratch.shared, size_product(node.where(), wanted.shared));
    if (wanted.shared > 0) uses_shared[n] = true;
  }
};

Executable::Executable(Program program, const CompileOptions& options)
    : Executor(std::move(program)),
      threads_(options.threads),
      activations_(options.activations),
      packed_per_step_(options.packed_per_step),
      weights_(options.threads),
      workers_in_use_(options.threads),
      exchange_(options.exchange),
      world_size_(options.world_size) {
  if (!isa_choice().reason.empty())
    throw UnavailableError(text("compile_program: ", isa_choice().reason));
}

Executable::Executable(Program program, const std::vector<TensorBytes>& tensors,
                       const CompileOptions& options)
    : Executable(std::move(program), options) {
  check_ranks(program_, options.rank, options.world_size);
  tensors_ = tensors;
  const bool is_packed = options.packed.first;
  is_packed_ = is_packed;
  require_tensors(program_, tensors_, tensors_to_compile(program_, is_packed));
  const Layout layout = plan();
  add_up(layout, is_packed);
  require_memory();
  if (is_packed) weights_.use(options.packed);
  allocate(layout);
  if (!is_packed) weights_.allocate();
  team_ = std::make_unique<Team>(threads_);
  fill_parameters(layout);
  make_shares(layout);
  pack_rest(!options.packs_in_steps, options.progress, options.let_go);
}

MemorySizes Executable::memory_of(Program program, const CompileOptions& options) {
  try {
    Executable planned(std::move(program), options);
    planned.add_up(planned.plan(), false);
    return planned.memory_;
  } catch (const SizeError& error) {
    throw MemoryError(error.what());
  }
}

Executable::Layout Executable::plan() {
  Layout layout;
  plan_caches(layout);
  step_.pages_per_request = program_.limits.pages_per_request();  // which scratch depends on
  nodes_.resize(program_.nodes.size());
  const auto has_rows = [](const NodeKind& kind) {
    return kind.inputs.size() == 1 && kernels_of(kind).row;
  };
  phases_ = phases_of(program_, {has_rows, [](const NodeKind&) { return false; }});
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = program_.nodes[n];
    Compiled& compiled = nodes_[n];
    compiled.kernels = kernels_of(*node.kind);
    if (node.kind->exchanges()) {
      if (world_size_ > 1) compiled.sent_columns = sent_columns(program_, node, world_size_);
      // One rank has what it would receive.
      if (world_size_ == 1) compiled.kernels.second = nullptr;
    }
    compiled.rows = program_.values[node.outputs[0]].rows;
    compiled.shares.assign(threads_, share_of(node, layout));
    layout.uses_shared.push_back(false);
    plan_products(n);
    plan_scratch(n, layout);
    plan_parameters(n, layout);
  }
  std::vector<bool> uses_shared;
  for (const Phase& phase : phases_) uses_shared.push_back(layout.uses_shared[phase.main]);
  layout.values = plan_values(program_, phases_, uses_shared);
  for (std::size_t p = 0; p < phases_.size(); ++p)
    nodes_[phases_[p].main].meets_before = layout.values.barrier_before[p];
  return layout;
}

void Executable::plan_caches(Layout& layout) const {
  std::size_t page_of_all[kCacheGroups] = {}, num_pages[kCacheGroups] = {};  // bytes of a page
  for (std::size_t c = 0; c < program_.caches.size(); ++c) {
    const Cache& cache = program_.caches[c];
    CacheMemory memory = cache_memory(program_.limits, cache, keeps_heads(program_, c));
    const CacheGroup group = group_of(cache);
    memory.bytes_before = page_of_all[group];
    num_pages[group] = memory.num_pages;
    const std::size_t heads = group == kOfStates ? 1 : cache.num_kv_heads;
    add_size("caches", page_of_all[group], size_product("caches", heads, memory.page_bytes));
    layout.caches.push_back(memory);
  }
  for (std::size_t c = 0; c < layout.caches.size(); ++c)
    layout.caches[c].bytes_of_all = page_of_all[group_of(program_.caches[c])];
  for (std::size_t group = 0; group < kCacheGroups; ++group) {
    layout.page_of_all[group] = page_of_all[group];
    layout.offset_of_caches[group] = layout.cache_bytes;
    add_size("caches", layout.cache_bytes,
             size_product("caches", num_pages[group], page_of_all[group]));
  }
  layout.state_bytes = size_product("states", num_pages[kOfStates], page_of_all[kOfStates]);
}

// The part of a share that the program itself gives: all but memory, and what differs by thread.
Share Executable::share_of(const Node& node, const Layout& layout) const {
  Share share{};
  share.step = &step_;
  share.threads = threads_;
  share.num_ranks = world_size_;
  share.rows = program_.limits.rows(program_.values[node.outputs[0]].rows);  // the most
  share.is_selected = program_.values[node.outputs[0]].rows == Rows::kSelected;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    share.input_columns[i] = program_.values[node.inputs[i]].columns;
  share.columns = program_.values[node.outputs[0]].columns;
  share.attributes = node.attributes.data();
  for (std::size_t s = 0; s < node.weights.size(); ++s) {
    if (node.weights[s].empty()) continue;
    const Tensor& first = program_.tensors[node.weights[s][0]];
    share.parameter_columns[s] = first.columns;
    if (node.kind->weights[s].form != WeightForm::kLookup) continue;
    share.table_format = &format_of(first);
    share.table_row_bytes = first.type->row_bytes(first.columns);
  }
  if (node.cache != kAbsent) share.cache = layout.caches[node.cache];
  return share;
}

// The tiles of all matrices that are one below the other are divided among the threads as if they
// were those of one.
void Executable::plan_products(std::size_t n) {
  const Node& node = program_.nodes[n];
  if (!matrices_of(node)) return;
  const auto groups = matrix_groups(program_, node);
  Compiled& compiled = nodes_[n];
  const std::size_t variant = fastest_product_variant(isa_choice().index);
  const std::size_t columns = program_.tensors[groups[0][0].tensor].columns;

  std::size_t tiles = 0, largest_tile = 0;
  Pieces prepared;  // of a token
  const auto kernel_of = [&](const Tensor& matrix) -> const ProductKernel& {
    const WeightFormat& format = format_of(matrix);
    return product_kernel(format, activations_for(format, activations_), variant);
  };
  // What is prepared for matrices with such a kernel, none yet if its kernel is null.
  PreparedKind kinds[kActivationTypes][2] = {};
  const auto kind_of = [&](const Tensor& matrix) -> PreparedKind& {
    const auto type = activations_for(format_of(matrix), activations_);
    return kinds[static_cast<std::size_t>(type)][kernel_of(matrix).prepares_in_rows];
  };
  for (const std::size_t index : *matrices_of(node)) {
    const Tensor& matrix = program_.tensors[index];
    tiles += matrix.planes * tiles_of(matrix.rows);
    largest_tile = std::max(largest_tile, format_of(matrix).tile_bytes(columns));
    PreparedKind& kind = kind_of(matrix);
    if (kind.kernel) continue;
    kind.kernel = &kernel_of(matrix);
    for (const ProductKernel* k = kind.kernel; k; k = k->of_several)
      kind.bytes = std::max(kind.bytes, aligned(k->prepared_bytes(columns)));
    kind.offset = prepared.add<unsigned char>(kind.bytes).offset;
    compiled.prepared.push_back(kind);
  }

  compiled.tiles.resize(threads_);
  if (tiles > TileClaims::kMost)
    throw ValueError(text(node.where(), ": the matrices have more than ",
                          TileClaims::kMost * kTileRows, " rows"));
  compiled.claims.reset(new TileClaims[threads_]);
  compiled.groups = groups.size();
  compiled.packed_by = packing_node(program_, n);
  for (const auto& matrices : groups) {
    std::size_t together = 0;
    for (const TensorPlane& each : matrices)
      together += tiles_of(program_.tensors[each.tensor].rows);
    for (std::size_t t = 0; t < threads_; ++t) {
      const std::size_t begin = together * t / threads_, end = together * (t + 1) / threads_;
      std::size_t before = 0, first_row = 0;
      for (const TensorPlane& each : matrices) {
        const Tensor& matrix = program_.tensors[each.tensor];
        const std::size_t from = std::max(begin, before),
                          to = std::min(end, before + tiles_of(matrix.rows));
        // The runs of an expert are found by its number, so that each has as many.
        if (from < to || groups.size() > 1) {
          const std::size_t row = from < to ? (from - before) * kTileRows : 0;
          const std::size_t row_bytes = matrix.type->row_bytes(columns);
          const TensorBytes source = tensors_.empty() ? TensorBytes{} : tensors_[each.tensor];
          TileRun run{};
          run.kernel = &kernel_of(matrix);
          run.prepared_offset = kind_of(matrix).offset;
          run.prepared_bytes = kind_of(matrix).bytes;
          run.tile_bytes = format_of(matrix).tile_bytes(columns);
          run.first = first_row + row;
          run.rows = from < to ? std::min((to - from) * kTileRows, matrix.rows - row) : 0;
          run.pack = format_of(matrix).pack[isa_choice().index];
          run.source =
              source.first ? source.first + (each.plane * matrix.rows + row) * row_bytes : nullptr;
          run.source_row_bytes = row_bytes;
          run.is_mapped_file = source.is_mapped_file;
          compiled.tiles[t].push_back(run);
          if (compiled.packed_by == n) weights_.add({t, run.rows, run.tile_bytes, nullptr});
        }
        before += tiles_of(matrix.rows);
        first_row += matrix.rows;
      }
    }
  }
  for (Share& share : compiled.shares) {
    share.product_columns = columns;
    share.num_prepared = compiled.prepared.size();
    share.prepared_bytes = prepared.bytes();
    share.tile_bytes = largest_tile;
  }
}

void Executable::plan_scratch(std::size_t n, Layout& layout) const {
  const Compiled& compiled = nodes_[n];
  const Share& share = compiled.shares[0];
  Scratch wanted;
  if (const auto scratch = compiled.kernels.scratch)
    wanted = scratch(share);
  else if (!compiled.tiles.empty())
    wanted =
        ProductScratch(share.product_columns, share.prepared_bytes, share.tile_bytes, share.rows)
            .size;
  layout.take_scratch(program_.nodes[n], n, wanted);
}

void Executable::plan_parameters(std::size_t n, Layout& layout) {
  const Node& node = program_.nodes[n];
  for (std::size_t s = 0; s < node.weights.size(); ++s) {
    const WeightForm form = node.kind->weights[s].form;
    const auto& tensors = node.weights[s];
    if (tensors.empty() || form == WeightForm::kMatrices || form == WeightForm::kStack ||
        form == WeightForm::kLookup)
      continue;
    if (!layout.parameters.emplace(tensors, layout.parameter_bytes).second) continue;
    std::size_t bytes = 0;
    for (std::size_t index : tensors)
      bytes += program_.tensors[index].rows * program_.tensors[index].columns * sizeof(float);
    layout.parameter_bytes += aligned(bytes);
  }
}

void Executable::add_up(const Layout& layout, bool is_packed) {
  packed_size_ = weights_.bytes();
  memory_ = {{"weights", layout.parameter_bytes + (is_packed ? 0 : packed_size_)},
             {"caches", layout.cache_bytes - layout.state_bytes},
             {"activations", layout.values.bytes},
             {"scratch", layout.scratch.shared + threads_ * layout.scratch.own},
             {"arrays", arrays_.bytes()}};
  if (layout.state_bytes > 0) memory_.emplace_back("states", layout.state_bytes);
  if (is_packed) memory_.emplace_back("mapped weights", packed_size_);
  if (world_size_ > 1)
    memory_.emplace_back("exchange", exchange_bytes(world_size_, most_sent(program_, world_size_)));
}

void Executable::require_memory() const {
  std::size_t total = 0;
  for (const auto& each : memory_) add_size("program", total, each.second);
  const std::uint64_t allowed = allowed_memory();
  if (allowed > 0 && total > allowed)
    throw MemoryError(
        text("compile_program: the program needs ", total, " bytes (",
             joined(memory_, [](const auto& each) { return text(each.first, " ", each.second); }),
             "), and the process may have ", allowed));
}

void Executable::allocate(const Layout& layout) {
  arrays_.allocate();
  for (std::size_t t = 0; t < threads_; ++t) own_.emplace_back(layout.scratch.own, "scratch");
  shared_ = Memory(layout.scratch.shared, "scratch");
  parameters_ = Memory(layout.parameter_bytes, "vectors and tables");
  caches_ = Memory(layout.cache_bytes, "caches");
  std::copy_n(layout.page_of_all, kCacheGroups, cache_bytes_);
  cache_memory_ = layout.caches;
  for (std::size_t c = 0; c < cache_memory_.size(); ++c)
    cache_memory_[c].data = caches_.data() + layout.offset_of_caches[group_of(program_.caches[c])];
  values_ = Memory(layout.values.bytes, "activations");
}

void Executable::fill_parameters(const Layout& layout) {
  for (const auto& [tensors, offset] : layout.parameters) {
    auto* to = reinterpret_cast<float*>(parameters_.data() + offset);
    std::size_t columns = 0, before = 0;  // of a row of all tensors
    for (std::size_t index : tensors) columns += program_.tensors[index].columns;
    for (std::size_t index : tensors) {
      const Tensor& tensor = program_.tensors[index];
      const std::size_t row_bytes = tensor.type->row_bytes(tensor.columns);
      const WeightFormat& format = format_of(tensor);
      for (std::size_t r = 0; r < tensor.rows; ++r)
        format.dequantize(tensors_[index].first + r * row_bytes, tensor.columns,
                          to + r * columns + before);
      before += tensor.columns;
    }
  }
}

// Says where the tiles of each run are, in the order in which the runs were planned.
void Executable::place_tiles() {
  auto slice = weights_.slices().begin();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    Compiled& node = nodes_[n];
    for (std::size_t g = 0; g < node.groups; ++g)
      for (std::size_t t = 0; t < threads_; ++t) {
        std::vector<TileRun>& runs = node.tiles[t];
        const std::size_t count = runs.size() / node.groups;
        for (std::size_t i = g * count; i < (g + 1) * count; ++i) {
          const bool is_own = node.packed_by == n;
          runs[i].tiles = is_own ? (slice++)->tiles : nodes_[node.packed_by].tiles[t][i].tiles;
          if (is_packed_) runs[i].num_packed = tiles_of(runs[i].rows);
        }
      }
  }
}

void Executable::make_shares(const Layout& layout) {
  const auto memory_of = [&](std::size_t value) -> unsigned char* {
    const auto& outputs = program_.outputs;
    if (value == kTokens || std::find(outputs.begin(), outputs.end(), value) != outputs.end())
      return arrays_.value(program_.values[value].name);
    const std::size_t offset = layout.values.offset[value];
    return offset == kAbsent ? nullptr : values_.data() + offset;
  };
  step_ = arrays_.step();
  place_tiles();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = program_.nodes[n];
    Compiled& compiled = nodes_[n];
    for (std::size_t t = 0; t < threads_; ++t) {
      Share& share = compiled.shares[t];
      share.thread = t;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        share.input[i] = memory_of(node.inputs[i]);
      share.output = memory_of(node.outputs[0]);
      if (node.outputs.size() > 1) share.second_output = memory_of(node.outputs[1]);
      for (std::size_t s = 0; s < node.weights.size(); ++s) {
        const auto& tensors = node.weights[s];
        const WeightForm form = node.kind->weights[s].form;
        if (tensors.empty()) continue;
        if (form == WeightForm::kLookup) share.table = tensors_[tensors[0]].first;
        if (const auto found = layout.parameters.find(tensors); found != layout.parameters.end() &&
                                                                form != WeightForm::kMatrices &&
                                                                form != WeightForm::kStack)
          share.parameters[s] = reinterpret_cast<float*>(parameters_.data() + found->second);
      }
      if (node.cache != kAbsent) share.cache = cache_memory_[node.cache];
      share.own = own_[t].data();
      share.shared = shared_.data();
      share.prepared = compiled.prepared.data();
      if (compiled.tiles.empty()) continue;
      share.runs = compiled.tiles[t].data();
      share.num_runs = compiled.tiles[t].size() / compiled.groups;
      for (std::size_t i = 0; i < share.num_runs; ++i)
        share.num_tiles += tiles_of(share.runs[i].rows);
      share.claims = compiled.claims.get();
      share.of_threads = compiled.shares.data();
    }
  }
  for (const Phase& phase : phases_)
    for (std::size_t t = 0; t < threads_; ++t) {
      Share& share = nodes_[phase.main].shares[t];
      share.output = memory_of(phase.writes[0]);
      if (phase.before != kAbsent) {
        share.before = &nodes_[phase.before].shares[t];
        share.row_before = nodes_[phase.before].kernels.row;
      }
      if (phase.residual != kAbsent)
        share.residual = reinterpret_cast<const float*>(memory_of(phase.residual));
    }
}

}  // namespace tensor_ops::decode
