#include "decode/executor/device_program.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "declaration/errors.h"
#include "decode/program/pieces.h"
#include "decode/program/sizes.h"
#include "launch/cuda.h"
#include "launch/pinned_pool.h"

namespace tensor_ops::decode {
namespace {

// The least number of bytes to copy when bandwidth is measured, and the number copied at once.
constexpr std::size_t kMeasuredBytes = std::size_t{256} << 20, kCopyBytes = std::size_t{64} << 20;
constexpr std::size_t kUploadBytes = std::size_t{8} << 20;  // that are packed before they are sent

// Takes the next `bytes`, aligned, of memory that is being planned.
std::size_t take(const char* of_what, std::size_t& total, std::size_t bytes) {
  const std::size_t offset = total;
  add_size(of_what, total, (bytes + 255) / 256 * 256);
  return offset;
}

std::size_t cache_elements(const Limits& limits, const Cache& cache) {
  const std::size_t pages = cache.is_paged ? limits.num_pages : limits.max_requests;
  const std::size_t page = cache.is_paged ? limits.page_size : limits.max_seq_length;
  return size_product("cache '" + cache.name + "'", pages, page, cache.num_kv_heads,
                      cache.head_size);
}
std::size_t element_bytes(const Cache& cache) { return cache.type == CacheType::kFloat16 ? 2 : 4; }

float float_of_bits(std::uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

float float_of_half(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | magnitude << 13);
  // The bias of the exponent is 112 less than float32's. The product is exact.
  return float_of_bits(sign | magnitude << 13) * 0x1p112f;
}

// The numbers of a vector or table as float32.
std::vector<float> floats_of(const Tensor& tensor, const unsigned char* from) {
  const std::string type = tensor.type->name;
  std::vector<float> numbers(tensor.rows * tensor.columns);
  if (type == "f32") {
    std::memcpy(numbers.data(), from, numbers.size() * sizeof(float));
    return numbers;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t bits = from[2 * i] | static_cast<std::uint32_t>(from[2 * i + 1]) << 8;
    numbers[i] = type == "bf16" ? float_of_bits(bits << 16) : float_of_half(bits);
  }
  return numbers;
}

}  // namespace

DeviceProgram::DeviceProgram(const Program& program, int blocks)
    : program_(program), lowered_(lower(program)) {
  plan_matrices();
  plan_parameters();
  for (const Cache& cache : program.caches)
    cache_.push_back(take("caches", cache_bytes_,
                          2 * cache_elements(program.limits, cache) * element_bytes(cache)));
  plan_values_and_scratch(blocks);
}

// A table that is multiplied too, as that of the embeddings often is, is packed once.
void DeviceProgram::plan_matrices() {
  std::map<std::vector<std::size_t>, std::size_t> in_order;  // by tensors
  for (const LoweredPhase& phase : lowered_.phases) {
    matrix_of_.push_back(kAbsent);
    if (phase.rows.empty()) continue;
    const bool is_in_order =
        phase.phase.result == DevicePhase::kStore || phase.phase.result == DevicePhase::kLogits;
    std::vector<std::size_t> tensors;
    for (const MatrixRow& row : phase.rows)
      if (row.row == 0) tensors.push_back(row.tensor);
    if (const auto found = in_order.find(tensors); is_in_order && found != in_order.end()) {
      matrix_of_.back() = found->second;
      continue;
    }
    if (is_in_order) in_order[tensors] = matrices_.size();
    matrix_of_.back() = matrices_.size();
    Matrix matrix{
        &phase,
        plan_panels(phase.format, phase.rows.size(), static_cast<std::size_t>(phase.phase.columns)),
        0, 0};
    matrix.offset = take("weights", weight_bytes_, matrix.plan.bytes);
    matrices_.push_back(std::move(matrix));
  }
}

void DeviceProgram::plan_parameters() {
  for (const LoweredPhase& phase : lowered_.phases)
    for (std::size_t tensor : {phase.norm, phase.cos, phase.sin})
      if (tensor != kAbsent && parameters_.count(tensor) == 0)
        parameters_[tensor] =
            take("parameters", parameter_bytes_,
                 program_.tensors[tensor].rows * program_.tensors[tensor].columns * sizeof(float));
}

std::size_t DeviceProgram::rows_of_value(std::size_t index) const {
  return std::min<std::size_t>(program_.limits.rows(program_.values[index].rows), kMostTokens);
}

// Where the values lie of the tokens of a step that run through the program together.
ValuePlan DeviceProgram::value_plan() const {
  Program together = program_;
  together.limits.max_tokens = std::min<std::size_t>(together.limits.max_tokens, kMostTokens);
  together.limits.max_selected = std::min<std::size_t>(together.limits.max_selected, kMostTokens);
  std::vector<Phase> phases;
  auto lowered = lowered_.phases.begin();
  for (const Phase& fused : lowered_.fused) {
    const bool is_lowered = lowered != lowered_.phases.end() &&
                            static_cast<std::size_t>(lowered->phase.node) == fused.main;
    const NodeKind& kind = *program_.nodes[fused.main].kind;
    if (kind.selects()) continue;  // those who read its rows look them up in what it reads
    Phase& phase = phases.emplace_back(fused);
    if (!is_lowered) continue;
    phase.reads.clear();
    phase.writes.clear();
    for (std::size_t value : {lowered->x, lowered->residual})
      if (value != kAbsent) phase.reads.push_back(value);
    if (lowered->y != kAbsent) phase.writes.push_back(lowered->y);
    ++lowered;
  }
  return plan_values(together, phases, std::vector<bool>(phases.size(), false));
}

void DeviceProgram::plan_values_and_scratch(int blocks) {
  const ValuePlan values = value_plan();
  value_ = values.offset;
  work_bytes_ = aligned(values.bytes);
  const auto take_work = [this](std::size_t bytes) {
    return take("activations", work_bytes_, bytes);
  };
  for (std::size_t output : program_.outputs)
    value_[output] = take_work(size_product(program_.values[output].name, rows_of_value(output),
                                            program_.values[output].columns, sizeof(float)));
  std::size_t queries = 0, parts = 0, sums = 0, num_panels = 0, most_panels = 0;
  for (std::size_t p = 0; p < lowered_.phases.size(); ++p) {
    const DevicePhase& phase = lowered_.phases[p].phase;
    if (matrix_of_[p] != kAbsent) {
      const PanelPlan& plan = matrices_[matrix_of_[p]].plan;
      num_panels += plan.panels.size();
      most_panels = std::max(most_panels, plan.panels.size());
      if (plan.panels.size() > 1)
        sums = std::max(sums, static_cast<std::size_t>(plan.panels[0].tiles));
    }
    if (phase.kind != DevicePhase::kAttend) continue;
    const auto heads = static_cast<std::size_t>(phase.attention.heads),
               size = static_cast<std::size_t>(phase.attention.head_size);
    queries = std::max(queries, heads * size);
    parts = std::max(parts,
                     size_product("attention", heads,
                                  static_cast<std::size_t>(phase.attention.most_spans), size + 2));
  }
  queries_ = take_work(kMostTokens * queries * sizeof(float));
  parts_ = take_work(size_product("attention", std::size_t{kMostTokens}, parts, sizeof(float)));
  sums_ = take_work(sums * 32 * 4 * sizeof(float));
  prepared_ = take_work(most_panels * prepared_bytes());
  best_ = take_work(static_cast<std::size_t>(blocks) * kMostTokens * 8);
  barrier_ = take_work(sizeof(unsigned));
  inputs_ = take_work(sizeof(StepInputs));
  page_table_ = take_work(program_.limits.max_requests * program_.limits.pages_per_request() *
                          sizeof(std::int32_t));
  times_ = take_work((lowered_.phases.size() + 1) * sizeof(unsigned long long));
  phases_ = take_work(lowered_.phases.size() * sizeof(DevicePhase));
  panels_ = take_work(num_panels * sizeof(Panel));
}

std::vector<std::pair<const char*, std::size_t>> DeviceProgram::memory() const {
  return {{"weights", weight_bytes_ + parameter_bytes_},
          {"caches", cache_bytes_},
          {"activations", work_bytes_}};
}

void DeviceProgram::load(const std::vector<TensorBytes>& tensors, const Progress& progress,
                         cudaStream_t stream) {
  weights_ = new_device_memory(std::max<std::size_t>(weight_bytes_ + parameter_bytes_, 1), stream);
  caches_ = new_device_memory(std::max<std::size_t>(cache_bytes_, 1), stream);
  work_ = new_device_memory(work_bytes_, stream);
  CUDA_CHECK(cudaMemsetAsync(at<unsigned>(barrier_), 0, sizeof(unsigned), stream));
  // As in other executors, for steps that do not begin at the first position.
  CUDA_CHECK(cudaMemsetAsync(caches_.get(), 0, cache_bytes_, stream));
  point_phases();
  upload_parameters(tensors, stream);
  std::size_t done = 0;
  for (const Matrix& matrix : matrices_) upload_matrix(matrix, tensors, progress, done, stream);
  const auto send = [&](auto* to, const auto& from) {
    CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size() * sizeof from[0],
                               cudaMemcpyHostToDevice, stream));
  };
  send(at<DevicePhase>(phases_), pointed_);
  send(at<Panel>(panels_), panel_list_);
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

// The panels that a step multiplies lie in the order of its phases, which the rings follow; those
// of tables lie behind them.
void DeviceProgram::point_phases() {
  auto* const weights = static_cast<unsigned char*>(weights_.get());
  const auto parameter = [&](std::size_t tensor) {
    return tensor == kAbsent
               ? nullptr
               : reinterpret_cast<float*>(weights + weight_bytes_ + parameters_.at(tensor));
  };
  const auto memory_of = [&](std::size_t value) {
    return value == kAbsent ? nullptr : at<float>(value_[value]);
  };
  pointed_.resize(lowered_.phases.size());
  for (const bool is_product : {true, false})
    for (std::size_t p = 0; p < pointed_.size(); ++p) {
      const LoweredPhase& lowered = lowered_.phases[p];
      if ((lowered.phase.kind == DevicePhase::kProduct) != is_product) continue;
      pointed_[p] = lowered.phase;
      pointed_[p].panels = at<Panel>(panels_) + panel_list_.size();
      if (matrix_of_[p] == kAbsent) continue;
      const Matrix& matrix = matrices_[matrix_of_[p]];
      pointed_[p].num_panels = static_cast<int>(matrix.plan.panels.size());
      for (std::size_t i = 0; i < matrix.plan.panels.size(); ++i) {
        panel_list_.push_back(matrix.plan.panels[i]);
        panel_list_.back().data = weights + matrix.offset + matrix.plan.offset[i];
      }
    }
  for (std::size_t p = 0; p < pointed_.size(); ++p) {
    const LoweredPhase& lowered = lowered_.phases[p];
    DevicePhase& phase = pointed_[p];
    phase.x = memory_of(lowered.x);
    phase.residual = memory_of(lowered.residual);
    phase.y = memory_of(lowered.y);
    phase.norm = parameter(lowered.norm);
    phase.attention.cos = parameter(lowered.cos);
    phase.attention.sin = parameter(lowered.sin);
    phase.attention.queries = at<float>(queries_);
    phase.attention.parts = at<float>(parts_);
    if (lowered.cache != kAbsent) {
      const Cache& cache = program_.caches[lowered.cache];
      auto* const keys = static_cast<unsigned char*>(caches_.get()) + cache_[lowered.cache];
      phase.attention.keys = keys;
      phase.attention.values = keys + cache_elements(program_.limits, cache) * element_bytes(cache);
    }
  }
}

void DeviceProgram::upload_parameters(const std::vector<TensorBytes>& tensors,
                                      cudaStream_t stream) const {
  for (const auto& [tensor, offset] : parameters_) {
    const std::vector<float> numbers = floats_of(program_.tensors[tensor], tensors[tensor].first);
    auto* const to = static_cast<unsigned char*>(weights_.get()) + weight_bytes_ + offset;
    CUDA_CHECK(cudaMemcpyAsync(to, numbers.data(), numbers.size() * sizeof(float),
                               cudaMemcpyHostToDevice, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
  }
}

void DeviceProgram::upload_matrix(const Matrix& matrix, const std::vector<TensorBytes>& tensors,
                                  const Progress& progress, std::size_t& done,
                                  cudaStream_t stream) const {
  const auto& rows = matrix.phase->rows;
  const auto columns = static_cast<std::size_t>(matrix.phase->phase.columns);
  const RowOf row = [&](std::size_t i) -> const unsigned char* {
    if (i >= rows.size()) return nullptr;
    return tensors[rows[i].tensor].first +
           rows[i].row * program_.tensors[rows[i].tensor].type->row_bytes(columns);
  };
  for (std::size_t p = 0; p < matrix.plan.panels.size(); ++p) {
    const Panel& panel = matrix.plan.panels[p];
    auto* const to =
        static_cast<unsigned char*>(weights_.get()) + matrix.offset + matrix.plan.offset[p];
    const std::size_t size = tile_bytes(panel),
                      at_once = std::max<std::size_t>(kUploadBytes / size, 1);
    const auto tiles = static_cast<std::size_t>(panel.tiles);
    const HostBuffer packed = new_host_buffer(std::min(at_once, tiles) * size);
    for (std::size_t first = 0; first < tiles; first += at_once) {
      const std::size_t end = std::min(first + at_once, tiles);
      pack_tiles(panel, columns, first, end, row, reinterpret_cast<unsigned char*>(packed.get()));
      CUDA_CHECK(cudaMemcpyAsync(to + first * size, packed.get(), (end - first) * size,
                                 cudaMemcpyHostToDevice, stream));
      CUDA_CHECK(cudaStreamSynchronize(stream));
      done += (end - first) * size;
      if (progress) progress(done, weight_bytes_);
    }
  }
}

double DeviceProgram::copy_bandwidth(cudaStream_t stream) const {
  using Clock = std::chrono::steady_clock;
  const std::size_t bytes = weight_bytes_ + parameter_bytes_, at_once = std::min(bytes, kCopyBytes);
  if (bytes == 0) throw Error("read_bandwidth: the program has no weights to read");
  const DeviceMemory to = new_device_memory(at_once, stream);
  CUDA_CHECK(cudaStreamSynchronize(stream));
  std::size_t done = 0;
  const auto start = Clock::now();
  while (done < kMeasuredBytes)
    for (std::size_t first = 0; first < bytes; first += at_once) {
      const std::size_t count = std::min(bytes - first, at_once);
      CUDA_CHECK(cudaMemcpyAsync(to.get(), static_cast<char*>(weights_.get()) + first, count,
                                 cudaMemcpyDeviceToDevice, stream));
      done += count;
    }
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return 2 * static_cast<double>(done) /
         std::chrono::duration<double>(Clock::now() - start).count();
}

Steps DeviceProgram::steps(std::size_t begin, std::size_t end) const {
  Steps steps{};
  steps.phases = at<DevicePhase>(phases_) + begin;
  steps.num_phases = static_cast<int>(end - begin);
  const Panel* first = nullptr;
  for (std::size_t p = begin; p < end; ++p) {
    if (pointed_[p].kind != DevicePhase::kProduct) continue;
    if (first == nullptr) first = pointed_[p].panels;
    steps.num_panels = static_cast<int>(pointed_[p].panels + pointed_[p].num_panels - first);
  }
  steps.panels = first;
  const StepInputs* const given = inputs();
  steps.tokens = given->tokens;
  steps.positions = given->positions;
  steps.slots = given->slots;
  steps.selected = given->selected;
  steps.ends_begin = given->ends_begin;
  steps.ends = given->ends;
  steps.page_table = page_table();
  steps.pages_per_request = static_cast<int>(program_.limits.pages_per_request());
  steps.num_words = static_cast<int>(std::min<std::size_t>(vocabulary_size(program_), INT32_MAX));
  steps.sums = at<float4>(sums_);
  steps.prepared = at<unsigned char>(prepared_);
  steps.best = at<void>(best_);
  steps.barrier = at<unsigned>(barrier_);
  return steps;
}

std::size_t DeviceProgram::phases_without_selected() const {
  std::size_t count = 0;
  while (count < pointed_.size() && !pointed_[count].is_selected) ++count;
  return count;
}

float* DeviceProgram::value(std::size_t index) const { return at<float>(value_[index]); }

void DeviceProgram::copy(std::size_t from, std::size_t to, std::size_t rows,
                         cudaStream_t stream) const {
  const std::size_t bytes = rows * program_.values[from].columns * sizeof(float);
  if (bytes > 0)
    CUDA_CHECK(cudaMemcpyAsync(value(to), value(from), bytes, cudaMemcpyDeviceToDevice, stream));
}

PhaseRows DeviceProgram::rows_of(std::size_t p) const {
  const DevicePhase& phase = pointed_[p];
  const Attention& attention = phase.attention;
  const auto heads = static_cast<std::size_t>(attention.heads),
             size = static_cast<std::size_t>(attention.head_size);
  if (phase.kind == DevicePhase::kAttend)
    return {attention.parts, heads * static_cast<std::size_t>(attention.most_spans) * (size + 2)};
  if (phase.result == DevicePhase::kRotated) return {attention.queries, heads * size};
  const auto columns =
      static_cast<std::size_t>(phase.kind == DevicePhase::kProduct ? phase.rows : phase.columns);
  return {phase.y, phase.result == DevicePhase::kGated ? columns / 2 : columns};
}

}  // namespace tensor_ops::decode
