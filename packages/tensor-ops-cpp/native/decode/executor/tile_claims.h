// Which of a thread's tiles are still to be multiplied in a step. The thread takes them from the
// front, so that it reads one sequential stream; threads that are done with their own help from the
// back.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensor_ops::decode {

class alignas(64) TileClaims {
  static constexpr unsigned kCountBits = 20;

 public:
  static constexpr std::size_t kMost = (std::size_t{1} << kCountBits) - 1;

  struct Tiles {
    std::size_t begin, end;
  };

  // Takes some of the tiles that are left in a step, a multiple of `together` as long as there are
  // as many; none if no tile is left. The first call in a step finds `all` tiles. Inlined, so that
  // no code of one level can be linked into another's.
  __attribute__((always_inline)) Tiles take(std::uint32_t step, std::size_t all, bool is_owner,
                                            std::size_t together) {
    std::uint64_t seen = __atomic_load_n(&left_, __ATOMIC_RELAXED);
    for (;;) {
      const bool is_of_step = seen >> kStepShift == (step & kMostSteps);
      const std::size_t begin = is_of_step ? seen >> kCountBits & kMost : 0;
      const std::size_t end = is_of_step ? seen & kMost : all;
      const std::size_t left_over = end - begin;
      if (left_over == 0) return {0, 0};
      const std::size_t wanted = ((left_over + 3) / 4 + together - 1) / together * together;
      const std::size_t count = wanted < left_over ? wanted : left_over;
      const Tiles taken = is_owner ? Tiles{begin, begin + count} : Tiles{end - count, end};
      const std::size_t new_begin = is_owner ? taken.end : begin;
      const std::size_t new_end = is_owner ? end : taken.begin;
      const std::uint64_t left = std::uint64_t{step & kMostSteps} << kStepShift |
                                 std::uint64_t{new_begin} << kCountBits | new_end;
      if (__atomic_compare_exchange_n(&left_, &seen, left, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
        return taken;
    }
  }

 private:
  static constexpr unsigned kStepShift = 2 * kCountBits;
  static constexpr std::uint32_t kMostSteps = (1u << (64 - kStepShift)) - 1;

  // The number of the step, the first tile that is left, and the one behind the last. The number is
  // cut to a few bits and so repeats, but a node is never left out of so many steps in a row that
  // it would mistake one step for another.
  std::uint64_t left_ = ~std::uint64_t{0};
};

}  // namespace tensor_ops::decode
