#include "decode/executor/packed_weights.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "declaration/errors.h"
#include "decode/products/tile.h"
#include "decode/program/node_kind.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

constexpr std::size_t kPrefetched = 1 << 14;  // bytes behind the last tile that may be prefetched

// Reads a word of each cache line, since memory hands over whole lines; at four places in turn,
// since a core reads faster at four places than at one.
void read_lines(const unsigned char* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64, kPlaces = 4;
  const std::size_t part = bytes / kPlaces;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + kLine <= part; i += kLine)
    for (std::size_t place = 0; place < kPlaces; ++place) {
      std::uint64_t word;
      std::memcpy(&word, from + place * part + i, sizeof(word));
      sum ^= word;
    }
  [[maybe_unused]] volatile std::uint64_t kept = sum;
}

}  // namespace

const std::vector<std::size_t>* matrices_of(const Node& node) {
  const auto& slots = node.kind->weights;
  for (std::size_t s = 0; s < slots.size(); ++s)
    if (slots[s].form == WeightForm::kMatrices || slots[s].form == WeightForm::kStack)
      return &node.weights[s];
  return nullptr;
}

std::vector<std::vector<TensorPlane>> matrix_groups(const Program& program, const Node& node) {
  const auto& slots = node.kind->weights;
  const bool has_stacks = std::any_of(slots.begin(), slots.end(), [](const WeightSlot& slot) {
    return slot.form == WeightForm::kStack;
  });
  std::vector<std::vector<TensorPlane>> groups(has_stacks ? node.planes : 1);
  std::size_t next = 0;
  for (const std::size_t tensor : *matrices_of(node))
    for (std::size_t plane = 0; plane < program.tensors[tensor].planes; ++plane)
      groups[next++ % groups.size()].push_back({tensor, plane});
  return groups;
}

std::size_t packing_node(const Program& program, std::size_t node) {
  const Node& wanted = program.nodes[node];
  for (std::size_t n = 0; n < node; ++n) {
    const auto* const matrices = matrices_of(program.nodes[n]);
    if (matrices && program.nodes[n].planes == wanted.planes && *matrices == *matrices_of(wanted))
      return n;
  }
  return node;
}

const WeightFormat& format_of(const Tensor& tensor) {
  if (const WeightFormat* format = find_weight_format(tensor.type->name)) return *format;
  throw Error(text("compile_program: tensor '", tensor.name,
                   "': the cpp backend has no products with ", tensor.type->name));
}

std::vector<bool> tensors_to_compile(const Program& program, bool is_packed) {
  std::vector<bool> wanted(program.tensors.size());
  for (const Node& node : program.nodes)
    for (const auto& slot : node.weights)
      for (std::size_t index : slot)
        if (!is_packed || &slot != matrices_of(node)) wanted[index] = true;
  return wanted;
}

std::string packed_layout(const Program& program) {
  std::string layout = text("tiles ", kTileLayout, " of ", kTileRows, " rows:");
  for (std::size_t n = 0; n < program.nodes.size(); ++n)
    if (const auto* matrices = matrices_of(program.nodes[n]);
        matrices && packing_node(program, n) == n)
      for (std::size_t index : *matrices) {
        const Tensor& matrix = program.tensors[index];
        layout += text(" ", matrix.type->name, " ");
        if (matrix.dimensions == 3) layout += text(matrix.planes, "x");
        layout += text(matrix.rows, "x", matrix.columns);
      }
  return layout;
}

void PackedTiles::add(const Slice& slice) {
  add_size("packed weights", thread_bytes_[slice.thread], slice.bytes());
  slices_.push_back(slice);
}

std::size_t PackedTiles::bytes() const {
  std::size_t all = 0;
  for (std::size_t each : thread_bytes_) add_size("packed weights", all, each);
  return all;
}

void PackedTiles::allocate() {
  std::vector<unsigned char*> next;
  for (std::size_t bytes : thread_bytes_) {
    memory_.push_back(std::make_shared<const Memory>(bytes + kPrefetched, "packed weights"));
    next.push_back(memory_.back()->data());
  }
  for (Slice& slice : slices_) {
    slice.tiles = next[slice.thread];
    next[slice.thread] += slice.bytes();
  }
}

void PackedTiles::use(const TensorBytes& packed) {
  if (packed.bytes != bytes())
    throw ValueError(text("compile_program: packed must have the ", bytes(),
                          " bytes that packed() of an executable has, got ", packed.bytes));
  if (reinterpret_cast<std::uintptr_t>(packed.first) % kTileAlignment != 0)
    throw ValueError(text("compile_program: packed must begin at a multiple of ", kTileAlignment,
                          " bytes; map it from such an offset of its file"));
  // Not written to: all of it is packed.
  auto* next = const_cast<unsigned char*>(packed.first);
  for (Slice& slice : slices_) {
    slice.tiles = next;
    next += slice.bytes();
  }
}

void PackedTiles::read(std::size_t thread) const {
  if (!memory_.empty()) {
    read_lines(memory_[thread]->data(), thread_bytes_[thread]);
  } else if (!slices_.empty()) {
    const std::size_t all = bytes(), threads = thread_bytes_.size();
    const std::size_t begin = all / threads * thread;
    read_lines(slices_[0].tiles + begin, thread + 1 < threads ? all / threads : all - begin);
  }
}

std::vector<PackedPiece> PackedTiles::pieces() const {
  std::vector<PackedPiece> pieces;
  for (const Slice& slice : slices_)
    pieces.push_back(
        {slice.tiles, slice.bytes(),
         memory_.empty() ? nullptr : std::shared_ptr<const void>(memory_[slice.thread])});
  return pieces;
}

void PackedTiles::clear() {
  slices_.clear();
  memory_.clear();
}

}  // namespace tensor_ops::decode
