// How many of a team's workers take part in a step. Where other processes take processors away, all
// wait at every meeting for a worker that has none, and fewer workers are faster.
#pragma once

#include <chrono>
#include <cstddef>

namespace tensor_ops::decode {

class WorkersInUse {
 public:
  using Duration = std::chrono::nanoseconds;

  explicit WorkersInUse(std::size_t most) : most_(most), count_(most) {}

  std::size_t count() const { return count_; }
  // Notes how long a step took, and for how long a worker had no processor in it.
  void note(Duration step, Duration without_processor);

 private:
  // Long enough for a scheduler to have given processors to some and to others.
  static constexpr std::chrono::milliseconds kJudged{20};
  // How long to wait before more workers are tried: at first, and after many failures.
  static constexpr std::chrono::milliseconds kShortestPause{100}, kLongestPause{800};

  std::size_t change() const { return (count_ + 7) / 8; }
  void set(std::size_t count);

  const std::size_t most_;
  std::size_t count_;
  Duration ran_{}, lost_{};  // since the count was last judged
  Duration unchanged_{};     // how long this count has been in use
  Duration pause_ = kShortestPause;
};

}  // namespace tensor_ops::decode
