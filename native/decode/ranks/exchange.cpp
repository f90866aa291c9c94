#include "decode/ranks/exchange.h"

#include <algorithm>
#include <cstring>

#include "declaration/errors.h"

namespace tensor_ops::decode {
namespace {

std::string place_of(const ExchangeTag& tag) {
  return text("node ", tag.node, " of its step ", tag.step, " with ", tag.rows, " rows of ",
              tag.columns, " columns");
}

std::uint64_t hash_of_arrays(const Step& step) {
  // FNV-1a by numbers instead of bytes.
  constexpr std::uint64_t kPrime = 1099511628211u;
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](const std::int32_t* first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      hash = (hash ^ static_cast<std::uint32_t>(first[i])) * kPrime;
  };
  add(step.tokens, step.num_tokens);
  add(step.positions, step.num_tokens);
  add(step.slots, step.num_tokens);
  add(step.selected, step.num_selected);
  return hash;
}

}  // namespace

std::string first_line_of(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

Exchange::~Exchange() = default;

void Exchange::begin_step(const Step& step) {
  step_.arrays = hash_of_arrays(step);
  step_.step = step.number;
}

void Exchange::meet(std::size_t node, std::size_t rows, std::size_t columns) {
  const auto number = [](std::size_t size) { return static_cast<std::uint32_t>(size); };
  paused_ = {};
  try {
    wait_for_others({step_.arrays, step_.step, number(node), number(rows), number(columns)});
  } catch (const std::exception& error) {
    failure_ = first_line_of(error);
    leave("has failed: " + failure_);
    throw;
  }
  ++num_done_;
}

std::size_t Exchange::least(std::size_t number, std::size_t node) {
  const ExchangeBuffers exchanged = buffers(num_done_, 1);
  *exchanged.sent = static_cast<float>(number);
  meet(node, 1, 1);
  float least = exchanged.received[0];
  for (std::size_t rank = 1; rank < world_size_; ++rank)
    least = std::min(least, exchanged.received[rank * exchanged.stride]);
  return static_cast<std::size_t>(least);
}

void Exchange::require_equal(const ExchangeTag& own, const ExchangeTag& other, std::size_t rank,
                             RankCalls& calls) const {
  if (std::memcmp(&own, &other, sizeof own) == 0) return;
  const std::string here = place_of(own), there = place_of(other);
  const std::string difference =
      here == there ? text("at ", here, ", the tokens, positions, slots or selected rows of rank ",
                           rank, " are not those of rank ", rank_)
                    : text("rank ", rank, " is at ", there, ", and rank ", rank_, " is at ", here);
  calls.fail(difference + "; all ranks must run the same steps of the same model", rank);
}

}  // namespace tensor_ops::decode
