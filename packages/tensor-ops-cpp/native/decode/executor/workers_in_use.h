// How many of a team's workers take part in a step. Where other processes take processors away, all
// wait at every meeting for a worker that has none, and fewer workers are faster. How much faster
// depends on the machine and on the program, so that it is tried.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "decode/executor/team.h"

namespace tensor_ops::decode {

class WorkersInUse {
 public:
  using Clock = Team::Clock;
  using Duration = Clock::duration;

  // In a step of this many tokens the workers seldom meet, and take over tiles of a worker that has
  // no processor: all workers are of use.
  static constexpr std::size_t kManyTokens = 64;

  explicit WorkersInUse(std::size_t most);

  // The number of workers for a step, by its number of tokens.
  std::size_t count(std::size_t tokens) const;
  // Notes when a step of count(tokens) workers began and ended, and for how long each of them could
  // have run in it but had no processor.
  void note(std::size_t tokens, Clock::time_point began, Clock::time_point ended,
            const std::vector<Duration>& without_processor);
  // Fixes count(), whatever is noted; 0 ends that.
  void hold(std::size_t count) { held_ = count; }

 private:
  // The mean time of the last steps of equally many tokens.
  struct Usual {
    Duration time{};
    int steps = 0;
  };

  bool is_trial() const { return count_ != settled_; }
  // Whether the usual time of steps with this number of tokens is known. Other steps cannot be
  // compared with it, and have the settled number of workers even during a trial.
  bool has_usual(std::size_t tokens) const { return usual_[tokens].time > Duration(); }
  std::size_t num_losing() const;
  void judge(Clock::time_point now);
  void try_fewer();
  void try_more();
  void begin_trial(std::size_t count);
  void end_trial(Clock::time_point now);
  void forget_steps();
  void expect_other_times();

  const std::size_t most_;
  std::size_t settled_;  // the best number so far
  std::size_t count_;    // another one while that is tried
  std::size_t held_ = 0;

  std::array<Usual, kManyTokens> usual_{};  // with the settled number, by tokens
  // Times of the steps that are judged next: how long they took, how long they would have taken
  // with the settled number, and how long each worker had no processor.
  Duration took_{}, would_have_taken_{};
  std::vector<Duration> lost_;

  bool was_losing_ = false;                 // when last judged
  bool has_tried_fewer_ = false;            // in the last trial
  std::size_t fewer_by_ = 0, more_by_ = 0;  // in the last trials that failed; 0: none since
  Clock::time_point next_trial_{};
};

}  // namespace tensor_ops::decode
